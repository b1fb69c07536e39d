"""Defines the requests about queues in a Change frame, each with its waiter: declare, bind, unbind, drop, purge,
farewell; and about keys: configure.

A request knows its step (requests of equal steps share one), its size, how to write itself into its step, and how to
read its part of the outcome. It is written when it joins a frame, in the call that makes it: a request that cannot be
written harms that call only. Not here: publishes (publish_requests.py), gathering (gather.py), what to do about a
refusal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from shoal.core.waiters import UNHEARD, Waiter, fail_waiter
from shoal.limits import GATHER_OPERATIONS_MAX, REQUEST_OVERHEAD_BYTES
from shoal.messages import BoundBefore, Start
from shoal_contract.errors import ShoalError, from_wire
from shoal_contract.limits import DROP_IF_EMPTY_OPERATIONS
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire

StepKind = tuple[Any, ...]
"""The verb and its options: requests of equal kind share a step."""
Columns = tuple[Any, ...]
"""The repeated fields of a step, into which its requests are written."""


class Request(ABC):
    """Is one request on the wire, done as a whole or not at all. `operations`: the number of its keys (at least 1), and
    of its values in the outcome's columns. `counted`: what it counts as in a frame; more where a slice counts it so."""

    __slots__ = ("cost_bytes", "counted", "deadline", "kind", "operations")
    verb: ClassVar[str]
    live: bool = False
    """True for a live publish: it travels in frames of its own, which are never sent again."""

    def __init__(self, kind: StepKind, operations: int, wire_bytes: int, deadline: float) -> None:
        self.kind = kind
        self.operations = self.counted = operations
        self.cost_bytes = wire_bytes + REQUEST_OVERHEAD_BYTES
        self.deadline = deadline
        """The event loop time of the first waiter's deadline."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Returns whether a caller still waits. A request without one that was not sent yet is left out."""

    @abstractmethod
    def begin(self, step: wire.Step) -> Columns:
        """Makes an empty step one of the request's kind. Returns the columns for `put`."""

    @abstractmethod
    def put(self, columns: Columns) -> None:
        """Writes the request into the columns of a step of its kind. A request put once can be put again."""

    @staticmethod  # noqa: B027 - most have nothing that waits
    def finish(step: wire.Step, requests: Sequence[Request]) -> None:
        """Writes the parts that had to wait until the frame is sent, for all requests of the step."""

    @abstractmethod
    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        """Gives the answer to the waiters. The request's values in the outcome's columns begin at `position`."""

    @abstractmethod
    def fail(self, error: ShoalError) -> None:
        """Fails the waiters with copies of the error."""

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails the waiters beyond their deadline."""
        if now >= self.deadline:
            self.fail(error)


class QueueRequest(Request):
    """Is the base of requests about one queue and keys of it, with one waiter."""

    __slots__ = ("keys", "queue", "waiter")

    def __init__(self, kind: StepKind, queue: bytes, keys: Sequence[bytes], deadline: float) -> None:
        size = len(queue) + 4 + sum(map(len, keys)) + 4 * len(keys)
        super().__init__(kind, max(1, len(keys)), size, deadline)
        self.queue = queue
        self.keys = keys
        self.waiter: Waiter[Sequence[int]] = UNHEARD
        """Set by the caller that wants the answer, before the request is submitted."""

    @property
    def alive(self) -> bool:
        return not self.waiter.done()

    def put(self, columns: Columns) -> None:
        queues, key_counts, keys = columns
        queues.append(self.queue)
        key_counts.append(len(self.keys))
        keys.extend(self.keys)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        if not self.waiter.done():
            self.waiter.set_result(outcome.offsets[position : position + len(self.keys)])

    def fail(self, error: ShoalError) -> None:
        fail_waiter(self.waiter, error)


def _offsets(outcome: wire.StepOutcome, position: int, count: int) -> Sequence[int]:
    """Returns the offsets of a request's keys. Raises ValueError where the outcome lacks some."""
    offsets: Sequence[int] = outcome.offsets[position : position + count]
    if len(offsets) != count:
        raise ValueError(f"it has {len(offsets)} offsets of {count} keys")
    return offsets


def bound_offsets(outcome: wire.StepOutcome, position: int, count: int) -> Sequence[int]:
    """Returns the offsets of a bind's keys; those of keys that were bound before are marked (`BoundBefore`)."""
    offsets = _offsets(outcome, position, count)
    if not outcome.bound_before:
        return offsets
    before = frozenset(outcome.bound_before)
    return [BoundBefore(one) if at in before else one for at, one in enumerate(offsets, position)]


class DeclareRequest(QueueRequest):
    """Declares a queue, or its part. `incarnation`: 0 at the queue's home; elsewhere the one that its home gave it. The
    answer is (incarnation,)."""

    __slots__ = ("_incarnation",)
    verb = "declare"

    def __init__(self, queue: bytes, options: QueueOptions, incarnation: int, deadline: float) -> None:
        super().__init__((DeclareRequest, options, bool(incarnation)), queue, (), deadline)
        self._incarnation = incarnation

    def begin(self, step: wire.Step) -> Columns:
        step.declares.options.CopyFrom(self.kind[1].to_wire())
        return step.declares.queues, step.declares.incarnations

    def put(self, columns: Columns) -> None:
        columns[0].append(self.queue)
        if self._incarnation:
            columns[1].append(self._incarnation)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        # A slice of an older version answers without incarnations; 0: not known.
        if not self.waiter.done():
            self.waiter.set_result((outcome.offsets[position] if outcome.offsets else 0,))


class Conditions(NamedTuple):
    """Says what must be true of a queue that is to be dropped."""

    if_unused: bool = False
    if_empty: bool = False


class DropRequest(QueueRequest):
    """Drops a queue, or its part. `incarnation`: drop only this life of the queue; 0: any life. The answer is
    (incarnation,): of the life that ended, 0 where the slice does not tell it."""

    __slots__ = ("_incarnation",)
    verb = "drop"

    def __init__(
        self,
        queue: bytes,
        incarnation: int,
        deadline: float,
        conditions: Conditions = Conditions(),  # noqa: B008
    ) -> None:
        super().__init__((DropRequest, bool(incarnation), conditions), queue, (), deadline)
        self.counted = _counted(conditions)
        self._incarnation = incarnation

    def begin(self, step: wire.Step) -> Columns:
        return _begin_drops(step, self.kind[2])

    def put(self, columns: Columns) -> None:
        columns[0].append(self.queue)
        if self._incarnation:
            columns[1].append(self._incarnation)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        if not self.waiter.done():
            self.waiter.set_result((outcome.offsets[position] if outcome.offsets else 0,))


def _counted(conditions: Conditions) -> int:
    return DROP_IF_EMPTY_OPERATIONS if conditions.if_empty else 1


def _begin_drops(step: wire.Step, conditions: Conditions) -> Columns:
    drops = step.drops
    drops.SetInParent()
    drops.if_unused, drops.if_empty = conditions
    return drops.queues, drops.incarnations


class DropsRequest(Request):
    """Drops many queues, each alone, as one step of a frame: one object instead of one each. `incarnations`: of each
    queue, or none. The answer says of each queue which incarnation ended, or why none did."""

    __slots__ = ("_incarnations", "_queues", "waiter")
    verb = "drop"

    def __init__(
        self, queues: Sequence[bytes], incarnations: Sequence[int], deadline: float, conditions: Conditions
    ) -> None:
        size = sum(map(len, queues)) + 14 * len(queues)
        super().__init__((DropsRequest, object(), conditions), len(queues), size, deadline)
        self.counted = len(queues) * _counted(conditions)
        self._queues = queues
        self._incarnations = incarnations
        self.waiter: Waiter[Sequence[int | ShoalError]] = UNHEARD
        """Set by the caller that wants the answer, before the request is submitted."""

    @property
    def alive(self) -> bool:
        return not self.waiter.done()

    def begin(self, step: wire.Step) -> Columns:
        return _begin_drops(step, self.kind[2])

    def put(self, columns: Columns) -> None:
        columns[0].extend(self._queues)
        columns[1].extend(self._incarnations)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        """Gives the answer; the step is of this request alone."""
        if self.waiter.done():
            return
        found: list[int | ShoalError] = list(outcome.offsets) or [0] * len(self._queues)
        if len(found) != len(self._queues):
            raise ValueError(f"it has {len(found)} incarnations of {len(self._queues)} queues")
        for refusal in outcome.refusals:
            found[refusal.request] = from_wire(refusal.error)
        self.waiter.set_result(found)

    def fail(self, error: ShoalError) -> None:
        fail_waiter(self.waiter, error)


def drops_at_once(conditions: Conditions) -> int:
    """Returns how many queues one request may drop."""
    return GATHER_OPERATIONS_MAX // _counted(conditions)


class PurgeRequest(QueueRequest):
    """Purges a queue. `position`: where to go on. The answer is (messages dropped, position of what is left; 0:
    nothing)."""

    __slots__ = ("_position",)
    verb = "purge"

    def __init__(self, queue: bytes, position: int, deadline: float) -> None:
        super().__init__((PurgeRequest,), queue, (), deadline)
        self._position = position

    def begin(self, step: wire.Step) -> Columns:
        step.purges.SetInParent()
        return step.purges.queues, step.purges.positions

    def put(self, columns: Columns) -> None:
        columns[0].append(self.queue)
        columns[1].append(self._position)

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        if not self.waiter.done():
            self.waiter.set_result((outcome.messages[position], outcome.positions[position]))


class ConfigureRequest(QueueRequest):
    """Gives a key options. The answer is empty."""

    __slots__ = ()
    verb = "configure"

    def __init__(self, key: bytes, options: KeyOptions, deadline: float) -> None:
        super().__init__((ConfigureRequest, options), b"", (key,), deadline)

    def begin(self, step: wire.Step) -> Columns:
        step.configures.options.CopyFrom(self.kind[1].to_wire())
        return (step.configures.keys,)

    def put(self, columns: Columns) -> None:
        columns[0].append(self.keys[0])


class FarewellRequest(QueueRequest):
    """Gives a queue a farewell; without `key` and `chunk`: takes it back. The answer is empty."""

    __slots__ = ("_chunk",)
    verb = "farewell"

    def __init__(self, queue: bytes, key: bytes, chunk: bytes, after_s: int, deadline: float) -> None:
        super().__init__((FarewellRequest, bool(key), after_s), queue, (key,) if key else (), deadline)
        self.cost_bytes += len(chunk) + 4
        self._chunk = chunk

    def begin(self, step: wire.Step) -> Columns:
        farewells = step.farewells
        farewells.SetInParent()
        farewells.after_s = self.kind[2]
        return farewells.queues, farewells.keys, farewells.chunks

    def put(self, columns: Columns) -> None:
        columns[0].append(self.queue)
        if self.keys:
            columns[1].append(self.keys[0])
            columns[2].append(self._chunk)


class BindRequest(QueueRequest):
    """Binds a queue to keys. The answer is the first offset of each key that will be seen."""

    __slots__ = ()
    verb = "bind"

    def __init__(self, queue: bytes, keys: Sequence[bytes], start: Start, deadline: float) -> None:
        super().__init__((BindRequest, start), queue, keys, deadline)

    def begin(self, step: wire.Step) -> Columns:
        binds = step.binds
        binds.start, binds.start_value = self.kind[1]
        return binds.queues, binds.key_counts, binds.keys

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        if not self.waiter.done():
            self.waiter.set_result(bound_offsets(outcome, position, len(self.keys)))


class UnbindRequest(QueueRequest):
    """Ends bindings. The answer is the first offset of each key that will not be seen. `discard`: the backlog goes
    too."""

    __slots__ = ()
    verb = "unbind"

    def __init__(self, queue: bytes, keys: Sequence[bytes], discard: bool, deadline: float) -> None:
        super().__init__((UnbindRequest, discard), queue, keys, deadline)

    def begin(self, step: wire.Step) -> Columns:
        unbinds = step.unbinds
        unbinds.discard = self.kind[1]
        return unbinds.queues, unbinds.key_counts, unbinds.keys

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        if not self.waiter.done():
            self.waiter.set_result(_offsets(outcome, position, len(self.keys)))
