"""Defines what a verb is: everything that checks, prices, applies or describes a step takes it from one table of these.

Belongs here: the form of a verb, and what verbs share while a change is applied. Not here: the verbs (one module each,
table.py lists them), what they do to the tables (core/apply).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire_count import Shape
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    APPLIED_PER_STEP,
    CHANGE_ACKS_COST_MAX,
    DROP_BINDINGS_MAX,
    EMPTY_BINDINGS_MAX,
    PURGE_BINDINGS_MAX,
)
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work

Measures = list[tuple[int, int]]
"""(messages, body bytes) of each chunk that a change publishes, in order."""

GrowingNames = Container[bytes]
"""The names of queues that get bindings by records that are not applied yet."""


class Columns(NamedTuple):
    """Says what a step names, in columns: `queues`, or `keys`, or both. `counts[i]`: the number of keys that belong to
    queue i; None: one each. `offsets`: where each key's binding begins, if the step says it. `chunks`: one for each
    key. `messages`: the number of messages from each offset on. `alone`: a queue without keys is a request, too."""

    queues: Sequence[bytes] = ()
    keys: Sequence[bytes] = ()
    counts: Sequence[int] | None = None
    offsets: Sequence[int | None] | None = None
    chunks: Sequence[bytes] = ()
    messages: Sequence[int] = ()
    alone: bool = False


class Price(NamedTuple):
    """Says what a verb may look at or end besides its own operations. `shared_max`: the budget, in bindings, that all
    steps of a change share that end bindings as this verb does. `bindings(tables, names, growing)`: what each queue's
    request may take."""

    shared_max: int
    bindings: Callable[[Tables, Iterable[bytes], GrowingNames], Iterable[int]]


class FirstRefusal(Exception):
    """Ends an atomic change at its first refusal: that of its step's request `number`."""

    def __init__(self, number: int, error: ShoalError) -> None:
        super().__init__(error.message)
        self.number = number
        self.error = error


class Change:
    """Keeps a change that is being applied: the state, and what its steps share. `measures`: those of its chunks.
    `atomic`: it ends at the first refusal. `found_by_age`: see Begin (core/apply/binds)."""

    __slots__ = ("acking", "atomic", "dropping", "found_by_age", "looking", "measures", "purging", "state", "time_ms")

    def __init__(self, state: State, measures: Iterable[tuple[int, int]], time_ms: int, atomic: bool = False) -> None:
        self.state = state
        self.atomic = atomic
        self.measures: Iterator[tuple[int, int]] = iter(measures)
        self.time_ms = time_ms
        self.acking = BindingBudget(CHANGE_ACKS_COST_MAX)
        self.dropping = BindingBudget(DROP_BINDINGS_MAX)
        self.purging = BindingBudget(PURGE_BINDINGS_MAX)
        self.looking = BindingBudget(EMPTY_BINDINGS_MAX)
        self.found_by_age: dict[tuple[bytes, int], int] = {}

    def refusal(self, number: int, error: ShoalError) -> wire.Refusal:
        """Counts the refusal of a step's request `number`, and returns it. Raises FirstRefusal in an atomic change."""
        if self.atomic:
            raise FirstRefusal(number, error)
        self.state.effects.counters.refuse(error.code)
        return self.state.refusals.to_wire(number, error)

    def each_queue(
        self,
        names: Iterable[bytes],
        incarnations: Iterable[int],
        request: Callable[[bytes, int], int],
        answers: bool = False,
    ) -> Work[wire.StepOutcome]:
        """Calls `request` for each queue. `answers`: the values it returns become the outcome's column of offsets."""
        outcome = wire.StepOutcome()
        for number, (name, incarnation) in enumerate(zip(names, incarnations or repeat(0), strict=False)):
            try:
                found = request(name, incarnation)
            except ShoalError as error:
                found = 0
                outcome.refusals.append(self.refusal(number, error))
            if answers:
                outcome.offsets.append(found)
            if number % APPLIED_PER_STEP == 0:
                yield
        return outcome

    def each_membership(
        self,
        step: wire.Binds | wire.Unbinds,
        request: Callable[[bytes, list[bytes]], Work[list[int]]],
        per_step: int,
    ) -> Work[tuple[wire.StepOutcome, int]]:
        """Calls `request` for each queue with its keys, `per_step` keys between two yields, or those of one queue.
        Returns the outcome, and how many keys were not refused."""
        keys = list(step.keys)
        counts = step.key_counts or [1] * len(keys)
        offsets: list[int] = []
        refusals: list[wire.Refusal] = []
        position = refused = left = 0
        for number, (queue, count) in enumerate(zip(step.queues, counts, strict=True)):
            end = position + count
            try:
                offsets += yield from request(queue, keys[position:end])
            except ShoalError as error:
                offsets += [0] * count
                refused += count
                refusals.append(self.refusal(number, error))
            position = end
            left -= count or 1
            if left <= 0:
                left = per_step
                yield
        return wire.StepOutcome(offsets=offsets, refusals=refusals), len(keys) - refused


class Verb(NamedTuple):
    """Describes a verb. `name`: its word in archives and reports. `check(number, step, measures)`: checks what needs
    the frame alone, adds the measures of its chunks, and returns its operations. `apply`: applies a step that was
    checked; what it adds to totals and events is in the record's Effects. `columns`: what a step names. `shape`: its
    columns of numbers, which are counted before a large frame is parsed. `grows`: it may give queues bindings; of binds
    the leader decides whether memory has room for them (core/node/limited_binds.py). `price`: what it may take besides
    its operations; None: nothing. `ranges(state, step)`: what done ranges of its bindings add to that; None: nothing.
    `in_run`: its frames are the chunks of a run: sessions may not use it, and no chunk
    may follow a gap. `atomic`: it may stand in an atomic change. `looks(step)`: what it takes besides, in operations,
    that does not count in the bound of a frame; None: nothing. `leader_decides(step)`: the record must say something of
    a drop that only the leader knows (core/node/unused_drops.py); None: never. `frees`: it takes little of the journal,
    and lets go of more: it is taken on a full disk as long as there is a reserve. `by_slice`: only the slice itself
    writes it, in the place of another one. `settles`: it may make done ranges."""

    name: str
    check: Callable[[int, Any, Measures], int]
    apply: Callable[[Change, Any], Work[wire.StepOutcome]]
    columns: Callable[[Any], Columns]
    shape: Shape
    grows: bool = False
    price: Price | None = None
    ranges: Callable[[State, Any], int] | None = None
    in_run: bool = False
    atomic: bool = False
    looks: Callable[[Any], int] | None = None
    leader_decides: Callable[[Any], bool] | None = None
    frees: bool = False
    by_slice: bool = False
    settles: bool = False
