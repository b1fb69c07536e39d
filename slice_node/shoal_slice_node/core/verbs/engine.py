"""Applies journal records to the tables. Deterministic: the same records give the same tables, on the leader, on
replicas and in replay. Records are applied only after they are durable, so the tables never hold changes that may be
lost.

Apply is total. A change was checked before it was journaled (core/checking); a change that breaks a rule all the same
is refused, here as on every node. A record kind or a step that this version does not know must not be skipped, or the
nodes' tables would differ unnoticed: it stops the node with its LSN and reason, and `shoal repair` can set it aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from shoal_contract.errors import Corrupt, ShoalError
from shoal_contract.journal_record import SET_ASIDE, Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.acks import apply_acks
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import bind, unbind
from shoal_slice_node.core.apply.declares import declare
from shoal_slice_node.core.apply.drops import drop, reclaim
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.imports import apply_imports, check_next_chunk
from shoal_slice_node.core.apply.producers import heard, remember, repeated_answer
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.purges import purge
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, decode_change, decode_ownership
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.trims import apply_trims
from shoal_slice_node.core.apply.watch import Watch
from shoal_slice_node.core.checking.frames import UNKNOWN_STEP, Checked, check_change
from shoal_slice_node.core.limits import APPLIED_PER_STEP, DROP_BINDINGS_MAX, PURGE_BINDINGS_MAX
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work, finish


class Engine:
    """Applies records to one slice's tables. `watch` says which effects are wanted; None: none (replay, replicas)."""

    def __init__(self, tables: Tables, watch: Watch | None = None) -> None:
        self.state = State(tables, watch or Watch())
        self._measures: Iterable[tuple[int, int]] = ()
        self._dropping = BindingBudget(0)
        self._purging = BindingBudget(0)

    def apply(self, record: Record, checked: Checked | None = None) -> Effects:
        """Applies a record as `in_steps` does, but all at once."""
        return finish(self.in_steps(record, checked))

    def in_steps(self, record: Record, checked: Checked | None = None) -> Work[Effects]:
        """Applies a record in steps. Between two steps the tables hold only a part of the record: no other code may
        read them, and the record must be applied to its end.

        `checked`: the change of a CHANGE record, if the caller has checked it already.

        Raises Corrupt, with the LSN as its value, for a record that cannot be applied: the tables are then of no use.
        """
        state = self.state
        effects = state.effects = Effects()
        if record.flags & SET_ASIDE:
            state.lsn = record.lsn
            effects.set_aside = True
            return effects
        try:
            state.lsn, state.time_ms = record.lsn, record.time_ms
            if record.epoch != state.epoch:
                state.begin_epoch(record.epoch)
            yield from self._apply(record, checked)
        except Exception as error:
            raise unappliable(record, error) from error
        return effects

    def _apply(self, record: Record, checked: Checked | None) -> Work[None]:
        kind = record.kind
        if kind == Kind.CHANGE:
            head, data = decode_change(record.payload)
            yield from self._change(head, checked, data, record.time_ms)
        elif kind == Kind.ACKS:
            apply_acks(self.state, record.payload)
        elif kind == Kind.TRIM:
            apply_trims(self.state, record.payload)
        elif kind == Kind.RECLAIM:
            reclaim(self.state, record.payload)
        elif kind == Kind.OWNERSHIP:
            self.state.set_owned(*decode_ownership(record.payload))
        else:
            raise ValueError(f"its kind {kind} is not known to this version")

    def _change(self, head: ChangeHead, checked: Checked | None, data: bytes, time_ms: int) -> Work[None]:
        effects = self.state.effects
        numbered = head.producer != NO_PRODUCER
        try:
            if checked is None:
                checked = check_change(data)
            repeated = repeated_answer(self.state, head) if numbered else None
            if numbered and repeated is None and checked.change.steps and checked.change.steps[0].HasField("imports"):
                check_next_chunk(self.state, head)
        except ShoalError as error:
            if error.subject == UNKNOWN_STEP:
                raise  # A newer version knew it: if this node refused it, tables would differ unnoticed.
            effects.refused = error
            return
        if repeated is not None:
            effects.outcome = repeated
            heard(self.state, head.producer, time_ms)
            return
        self.state.refusals.begin()
        self._measures = iter(checked.measures)
        self._dropping = BindingBudget(DROP_BINDINGS_MAX)
        self._purging = BindingBudget(PURGE_BINDINGS_MAX)
        outcome = wire.Outcome()
        for step in checked.change.steps:
            outcome.steps.append((yield from self._step(step, time_ms)))
        self.state.refusals.begin()
        effects.outcome = outcome.SerializeToString()
        if numbered:
            remember(self.state, head, effects.outcome, time_ms)

    def _step(self, step: wire.Step, time_ms: int) -> Work[wire.StepOutcome]:
        kind = step.WhichOneof("step") or ""
        return _STEPS[kind](self, getattr(step, kind), time_ms)

    def _binds(self, step: wire.Binds, _: int) -> Work[wire.StepOutcome]:
        start, value = step.start, step.start_value
        outcome, done = yield from self._memberships(
            step, lambda queue, keys: bind(self.state, queue, keys, start, value)
        )
        self.state.counters.binds += done
        return outcome

    def _unbinds(self, step: wire.Unbinds, _: int) -> Work[wire.StepOutcome]:
        discard = step.discard
        outcome, done = yield from self._memberships(step, lambda queue, keys: unbind(self.state, queue, keys, discard))
        self.state.counters.unbinds += done
        return outcome

    def _memberships(
        self, step: wire.Binds | wire.Unbinds, request: Callable[[bytes, list[bytes]], Work[list[int]]]
    ) -> Work[tuple[wire.StepOutcome, int]]:
        """Returns the outcome, and how many keys were not refused."""
        keys = list(step.keys)
        counts = step.key_counts or [1] * len(keys)
        offsets: list[int] = []
        refusals: list[wire.Refusal] = []
        position = refused = 0
        for number, (queue, count) in enumerate(zip(step.queues, counts, strict=True)):
            end = position + count
            try:
                offsets += yield from request(queue, keys[position:end])
            except ShoalError as error:
                offsets += [0] * count
                refused += count
                refusals.append(self._refusal(number, error))
            position = end
            if number % APPLIED_PER_STEP == 0:
                yield
        return wire.StepOutcome(offsets=offsets, refusals=refusals), len(keys) - refused

    def _publishes(self, step: wire.Publishes, time_ms: int) -> Work[wire.StepOutcome]:
        outcome = wire.StepOutcome()
        offsets: list[int] = []
        queues: list[int] = []
        mandatory = step.mandatory
        counters, kept = self.state.counters, self.state.kept
        kept_before = kept.messages
        for number, (key, chunk, measure) in enumerate(zip(step.keys, step.chunks, self._measures, strict=False)):
            try:
                first, routed = publish(self.state, key, chunk, measure, mandatory, time_ms)
            except ShoalError as error:
                first = routed = 0
                self.state.effects.published.append(None)
                outcome.refusals.append(self._refusal(number, error))
            offsets.append(first)
            queues.append(routed)
            if number % APPLIED_PER_STEP == 0:
                yield
        counters.publishes += kept.messages - kept_before
        counters.chunks += len(offsets) - len(outcome.refusals)
        outcome.offsets.extend(offsets)
        outcome.queues.extend(queues)
        return outcome

    def _declares(self, step: wire.Declares, _: int) -> Work[wire.StepOutcome]:
        expires, budget = step.options.expires_after_s, self._dropping
        outcome = yield from self._queues(
            step.queues,
            step.incarnations,
            lambda queue, incarnation: declare(self.state, queue, expires, incarnation, budget),
            answers=True,
        )
        self.state.counters.declares += len(step.queues) - len(outcome.refusals)
        return outcome

    def _drops(self, step: wire.Drops, _: int) -> Work[wire.StepOutcome]:
        budget = self._dropping
        outcome = yield from self._queues(
            step.queues, step.incarnations, lambda queue, incarnation: drop(self.state, queue, incarnation, budget)
        )
        self.state.counters.drops += len(step.queues) - len(outcome.refusals)
        return outcome

    def _purges(self, step: wire.Purges, _: int) -> Work[wire.StepOutcome]:
        outcome = wire.StepOutcome()
        budget = self._purging
        positions = step.positions or repeat(0)
        for number, (queue, position) in enumerate(zip(step.queues, positions, strict=False)):
            try:
                messages, left = purge(self.state, queue, position, budget)
            except ShoalError as error:
                messages = left = 0
                outcome.refusals.append(self._refusal(number, error))
            outcome.messages.append(messages)
            outcome.positions.append(left)
            if number % APPLIED_PER_STEP == 0:
                yield
        self.state.counters.purges += len(step.queues) - len(outcome.refusals) - sum(map(bool, outcome.positions))
        return outcome

    def _imports(self, step: wire.Imports, _: int) -> Work[wire.StepOutcome]:
        outcome = yield from apply_imports(self.state, step, self._refusal)
        self.state.counters.declares += outcome.queues_made
        self.state.counters.binds += outcome.bindings_made
        return outcome

    def _refusal(self, number: int, error: ShoalError) -> wire.Refusal:
        self.state.counters.refuse(error.code)
        return self.state.refusals.to_wire(number, error)

    def _queues(
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
                outcome.refusals.append(self._refusal(number, error))
            if answers:
                outcome.offsets.append(found)
            if number % APPLIED_PER_STEP == 0:
                yield
        return outcome


_STEPS: dict[str, Callable[[Engine, Any, int], Work[wire.StepOutcome]]] = {
    "binds": Engine._binds,
    "unbinds": Engine._unbinds,
    "publishes": Engine._publishes,
    "declares": Engine._declares,
    "drops": Engine._drops,
    "purges": Engine._purges,
    "imports": Engine._imports,
}


def unappliable(record: Record, error: Exception) -> Corrupt:
    """Returns the error that stops a node before a record that cannot be applied."""
    try:
        kind = Kind(record.kind).name
    except ValueError:
        kind = f"kind {record.kind}"
    return Corrupt(
        f"journal record {record.lsn} ({kind}) cannot be applied: {type(error).__name__}: {error}. The slice stops"
        f" before it. `shoal repair PATH --skip {record.lsn}`, PATH being this node's data folder, sets it aside:"
        " what it asked for is then lost",
        subject=f"journal record {record.lsn}",
        value=record.lsn,
    )
