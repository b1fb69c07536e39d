"""Keeps what a fake slice has: queues, keys, bindings, producers, in plain dictionaries. The words of the contract, no
speed.

Belongs here: what changes do, what may be given to whom. Not here: streams and times (fake_slice.py).

Long because every verb of a slice is here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shoal.testing.fake_dead_letters import copy_of
from shoal.testing.fake_farewells import FakeFarewells
from shoal.testing.fake_queues import FakeQueues
from shoal.testing.limits import DESCRIBE_BINDINGS_MAX
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Conflict, NotOwner, OutOfRange, ResourceExhausted, ShoalError, Unroutable
from shoal_contract.limits import DESCRIBE_BINDINGS_SUBJECT, FIRST_OFFSET, KEY_UNACKED_MAX
from shoal_contract.names import DIRECT_PREFIX, direct_key, encode_name, show
from shoal_contract.options import PLAIN, KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Error


@dataclass
class Binding:
    """Binds a queue to a key. `start`, `end`: start <= offset < end are its own; `end` 0: still bound."""

    start: int
    end: int = 0
    done: set[int] = field(default_factory=set)
    """The acked offsets."""
    given: dict[int, object] = field(default_factory=dict)
    """Offset -> the session that has it."""
    times_given: dict[int, int] = field(default_factory=dict)
    """Offset -> how often it was given, as far as that counts."""
    given_as: dict[int, int] = field(default_factory=dict)
    """Offset -> the number of the take that gave it last."""


@dataclass
class Key:
    """Keeps a key's log and bindings."""

    head: int = FIRST_OFFSET
    """The offset that the next message gets."""
    chunks: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Chunks: (first, end, serialized chunk). Only a capacity takes some away."""
    bindings: dict[bytes, Binding] = field(default_factory=dict)
    """Queue -> its binding."""
    options: KeyOptions = PLAIN
    """What the key was configured with."""
    expiring: set[int] = field(default_factory=set)
    """The first offsets of chunks with a ttl."""
    expired: list[tuple[int, int]] = field(default_factory=list)
    """What expired: first <= offset < end."""

    @property
    def low(self) -> int:
        """Returns the lowest offset that is kept."""
        return self.chunks[0][0] if self.chunks else self.head


Given = tuple[bytes, int, int, int, bytes, int]
"""Messages to deliver: (key, first of the chunk, from, to, chunk, redelivered)."""


class FakeState:
    """Applies changes. `owner_of` and `version`: return what the map says, as this slice sees it."""

    def __init__(self, name: str, owner_of: Callable[[bytes], str], version: Callable[[], int]) -> None:
        self.name = name
        self.queues = FakeQueues(lambda queue: owner_of(direct_key(queue)) == name, self._end)
        self.dropped: list[bytes] = []
        """Queues whose life ended since the last look of `take_dropped`."""
        self.keys: dict[bytes, Key] = {}
        self.live: list[tuple[bytes, bytes, list[bytes]]] = []
        """Live chunks since the last look of `take_live`."""
        self.routed: list[Sequence[bytes]] = []
        """For each publish of the last change the queues that it was routed to."""
        self.answers: dict[tuple[bytes, int], bytes] = {}
        self.last_sequence: dict[bytes, int] = {}
        self.delayed: list[tuple[int, bytes, bytes, int]] = []
        """What waits for its time: Unix time in milliseconds, key, chunk, time to live in milliseconds."""
        self.applied = 0
        """The number of changes applied; repeats are not."""
        self.describe_bindings_max = DESCRIBE_BINDINGS_MAX
        """The bindings of all queues of one Describe, above which it is refused."""
        self._takes = 0
        self.note_given: Callable[[bytes, bytes, int, int, object, int], None] = lambda *given: None
        """Called for messages that are given: queue, key, first <= offset < end, session, and how often by now."""
        self.used: Callable[[bytes], bool] = lambda queue: False
        """Returns whether a session consumes a queue."""
        self.farewells = FakeFarewells(self.consumed, lambda *letter: self.send_letter(*letter))
        self.send_letter: Callable[[bytes, bytes], None] = self.take_letter
        """Publishes a dead letter or a farewell, on whichever slice owns its key."""
        self._owner_of = owner_of
        self._version = version

    def change(self, producer: bytes, sequence: int, settled: int, data: bytes) -> bytes:
        """Applies a change, and returns its serialized Outcome; a repeat gets the first one. `routed` is its own then;
        that of a repeat is empty."""
        self.routed = []
        if sequence <= self.last_sequence.get(producer, 0):
            return self.answers[producer, sequence]
        change = wire.Change.FromString(data)
        before = self._copy() if change.atomic else None
        outcome = wire.Outcome(steps=[self._step(step) for step in change.steps])
        lives = [step.publishes.live for step in change.steps]
        assert all(lives) or not any(lives), "live publishes have frames of their own"
        if any(lives):
            return outcome.SerializeToString()
        self.applied += 1
        if before is not None and any(step.refusals for step in outcome.steps):
            self._restore(*before)
        self.last_sequence[producer] = sequence
        self.answers[producer, sequence] = outcome.SerializeToString()
        for old in [entry for entry in self.answers if entry[0] == producer and entry[1] <= settled]:
            del self.answers[old]
        return outcome.SerializeToString()

    def _copy(self) -> tuple[Any, ...]:
        keys = {
            name: replace(
                key,
                chunks=list(key.chunks),
                bindings={q: _copied(one) for q, one in key.bindings.items()},
                expiring=set(key.expiring),
                expired=list(key.expired),
            )
            for name, key in self.keys.items()
        }
        return keys, self.queues.copy(), list(self.dropped), list(self.delayed)

    def _restore(self, keys: dict[bytes, Key], queues: Any, dropped: list[bytes], delayed: list[Any]) -> None:
        self.keys, self.dropped, self.delayed = keys, dropped, delayed
        self.queues.restore(queues)

    def _step(self, step: wire.Step) -> wire.StepOutcome:
        outcome = wire.StepOutcome()
        if step.HasField("purges"):
            for index, queue in enumerate(step.purges.queues):
                self._purge(index, queue, outcome)
            return outcome
        for index, (count, request) in enumerate(self._requests(step)):
            try:
                offsets, queues = request()
            except ShoalError as error:
                offsets, queues = [0] * count, [0] * count
                if (step.HasField("declares") or step.HasField("drops")) and self.queues.knows_incarnations:
                    offsets = [0]
                outcome.refusals.append(wire.Refusal(request=index, error=error.to_wire()))
            if step.HasField("binds"):
                outcome.bound_before.extend(at for at, one in enumerate(offsets, len(outcome.offsets)) if one < 0)
            outcome.offsets.extend(map(abs, offsets))
            if step.HasField("publishes"):
                outcome.queues.extend(queues)
                self.routed.append(self.bound_to(step.publishes.keys[index]) if any(queues) else ())
        return outcome

    def _requests(self, step: wire.Step) -> Iterator[tuple[int, Callable[[], tuple[list[int], list[int]]]]]:
        if step.HasField("declares"):
            declares = step.declares
            lives = declares.incarnations or [0] * len(declares.queues)
            for queue, incarnation in zip(declares.queues, lives, strict=True):
                yield 0, partial(self._declare, queue, QueueOptions.of_wire(declares.options), incarnation)
        elif step.HasField("configures"):
            for key in step.configures.keys:
                yield 0, partial(self._configure, key, KeyOptions.of_wire(step.configures.options))
        elif step.HasField("farewells"):
            for number, queue in enumerate(step.farewells.queues):
                yield 0, partial(self._farewell, queue, number, step.farewells)
        elif step.HasField("drops"):
            drops = step.drops
            for queue, incarnation in zip(drops.queues, drops.incarnations or [0] * len(drops.queues), strict=True):
                yield 0, partial(self._drop, queue, incarnation, drops)
        elif step.HasField("acks"):
            lives = step.acks.lives or [0] * len(step.acks.queues)
            named = zip(step.acks.queues, lives, step.acks.keys, step.acks.lows, step.acks.tos, strict=True)
            for queue, life, name, low, to in named:
                yield 0, partial(self._ack_in_change, queue, life, name, low, to)
        elif step.HasField("publishes"):
            published = step.publishes
            for key, chunk in zip(published.keys, published.chunks, strict=True):
                if published.live:
                    yield 1, partial(self._publish_live, key, chunk, published.mandatory)
                else:
                    terms = published.mandatory, published.not_before_ms, published.ttl_ms
                    yield 1, partial(self._publish, key, chunk, *terms)
        else:
            assert step.HasField("binds") or step.HasField("unbinds"), f"no {step.WhichOneof('step')} in this fake"
            binds = step.binds if step.HasField("binds") else step.unbinds
            position = 0
            for queue, count in zip(binds.queues, binds.key_counts or [1] * len(binds.keys), strict=True):
                keys = binds.keys[position : position + count]
                position += count
                yield count, partial(self._change_binding, queue, keys, binds)

    def _change_binding(
        self, queue: bytes, keys: Sequence[bytes], step: wire.Binds | wire.Unbinds
    ) -> tuple[list[int], list[int]]:
        self.check_owner(*keys)
        self.queues.check(queue)
        if isinstance(step, wire.Binds):
            for key in keys if step.start == wire.START_OFFSET else ():
                if self._is_bound(queue, key):
                    continue
                if step.start_value > (head := self.keys.get(key, Key()).head):
                    raise OutOfRange(f"key {show(key)} gives offset {head} next", subject=show(key), limit=head)
            return [self._bind_one(queue, self.keys.setdefault(key, Key()), step) for key in keys], []
        return [self._unbind_one(queue, self.keys.setdefault(key, Key()), step) for key in keys], []

    def _declare(self, queue: bytes, options: QueueOptions, incarnation: int) -> tuple[list[int], list[int]]:
        found = self.queues.declare(queue, options, incarnation)
        if self._owner_of(direct_key(queue)) == self.name:
            key = self.keys.setdefault(direct_key(queue), Key())
            key.bindings.setdefault(queue, Binding(key.head))
        return [found] if self.queues.knows_incarnations else [], []

    def _configure(self, key: bytes, options: KeyOptions) -> tuple[list[int], list[int]]:
        self.check_owner(key)
        self.keys.setdefault(key, Key()).options = options
        return [], []

    def _farewell(self, queue: bytes, number: int, step: wire.Farewells) -> tuple[list[int], list[int]]:
        home = self._owner_of(direct_key(queue))
        if home != self.name:
            raise NotOwner(f"slice {home} is the home of {show(queue)}", map_version=self._version(), owner=home)
        self.queues.check(queue)
        self.farewells.change(queue, number, step)
        return [], []

    def _ack_in_change(self, queue: bytes, life: int, name: bytes, low: int, to: int) -> tuple[list[int], list[int]]:
        self.check_owner(name)
        self.queues.check(queue)
        if not self.queues.lives_on(queue, life):
            raise Conflict(f"queue {show(queue)} was dropped and declared anew", subject=show(queue))
        key = self.keys.get(name, Key())
        binding = key.bindings.get(queue)
        if binding is not None and to > key.head:
            raise OutOfRange(f"key {show(name)} gives offset {key.head} next", subject=show(name))
        offsets = set(range(low, to))
        if binding is None or low < binding.start or (binding.end and to > binding.end) or offsets & binding.done:
            raise Conflict(f"queue {show(queue)} does not have all of it to get", subject=show(queue))
        binding.done |= offsets
        for offset in offsets & binding.given.keys():
            del binding.given[offset]
        return [], []

    def _drop(self, queue: bytes, incarnation: int, step: wire.Drops) -> tuple[list[int], list[int]]:
        self.queues.check(queue)
        if step.if_unused and self.consumed(queue):
            raise Conflict(f"queue {show(queue)} is in use", subject=show(queue))
        if step.if_empty and self._backlog(queue):
            raise Conflict(f"queue {show(queue)} is not empty", subject=show(queue))
        found = self.queues.drop(queue, incarnation)
        return [found] if self.queues.knows_incarnations else [], []

    def _backlog(self, queue: bytes) -> int:
        bindings = [(key, key.bindings[queue]) for key in self.keys.values() if queue in key.bindings]
        return sum(len(set(range(one.start, one.end or key.head)) - one.done) for key, one in bindings)

    def _end(self, queue: bytes) -> None:
        for key in self.keys.values():
            key.bindings.pop(queue, None)
        self.farewells.forget(queue)
        self.dropped.append(queue)

    def take_dropped(self) -> list[bytes]:
        """Returns the queues whose life ended since the last call."""
        found, self.dropped = self.dropped, []
        return found

    def _purge(self, index: int, queue: bytes, outcome: wire.StepOutcome) -> None:
        """Drops a backlog, one key at a time: the position is 1 while there are more."""
        dropped = more = 0
        try:
            self.queues.check(queue)
            for key in self.keys.values():
                binding = key.bindings.get(queue)
                left = set(range(binding.start, key.head)) - binding.done if binding else set()
                if binding and left and not dropped:
                    binding.done |= left
                    dropped = len(left)
                else:
                    more |= bool(left)
        except ShoalError as error:
            outcome.refusals.append(wire.Refusal(request=index, error=error.to_wire()))
        outcome.messages.append(dropped)
        outcome.positions.append(more)

    def bound_to(self, key: bytes) -> list[bytes]:
        """Returns the queues that are bound to a key now."""
        return [queue for queue, binding in self.keys.get(key, Key()).bindings.items() if not binding.end]

    def _is_bound(self, queue: bytes, key: bytes) -> bool:
        binding = self.keys[key].bindings.get(queue) if key in self.keys else None
        return binding is not None and not binding.end

    def _bind_one(self, queue: bytes, key: Key, step: wire.Binds) -> int:
        """Returns the binding's start; it is negative if an offset was asked for, and the queue was bound before."""
        binding = key.bindings.get(queue)
        if binding is not None and not binding.end:
            return -binding.start if step.start == wire.START_OFFSET else binding.start
        starts = {
            wire.START_EARLIEST: key.low,
            wire.START_LAST: max(key.low, key.head - step.start_value),
            wire.START_OFFSET: max(key.low, step.start_value),
            wire.START_AGE: key.low,  # The fake has no clock: all was published just now.
        }
        start: int = starts.get(step.start, key.head)
        if binding is None:
            key.bindings[queue] = Binding(start)
            return start
        # Live again from `start`, besides what it still had to get: the time away is done.
        binding.done = {at for at in binding.done if at < start} | set(range(binding.end, start))
        binding.start, binding.end = min(binding.start, start), 0
        return start

    def _unbind_one(self, queue: bytes, key: Key, step: wire.Unbinds) -> int:
        bound = key.bindings.get(queue)
        end = key.head if bound is not None and not bound.end else 0
        if step.discard:
            key.bindings.pop(queue, None)
        elif bound is not None and end:
            bound.end = end
            if not set(range(bound.start, end)) - bound.done:
                del key.bindings[queue]
        return end

    def _publish(
        self, name: bytes, chunk: bytes, mandatory: bool, not_before_ms: int = 0, ttl_ms: int = 0
    ) -> tuple[list[int], list[int]]:
        self.check_owner(name)
        key = self.keys.setdefault(name, Key())
        bound = len(self.bound_to(name))
        if not not_before_ms and (bound or key.options.keeps_history):
            _fit_capacity(name, key, chunk)
        if not bound and (mandatory or not key.options.keeps_history):
            if mandatory:
                raise Unroutable(f"key {show(name)} has no bindings", subject=show(name))
            if not not_before_ms:
                return [0], [0]
        if not_before_ms:
            self.delayed.append((not_before_ms, name, chunk, ttl_ms))
            return [0], [0]
        first = key.head
        key.head += len(parse_chunk(chunk).bodies)
        key.chunks.append((first, key.head, chunk))
        if ttl_ms:
            key.expiring.add(first)
        return [first], [bound]

    def expire(self) -> None:
        """Ends the time of all that was published with a ttl, as if it were over: the fake has no clock."""
        for key in self.keys.values():
            key.expired += [(first, end) for first, end, _ in key.chunks if first in key.expiring]
            key.chunks = [chunk for chunk in key.chunks if chunk[0] not in key.expiring]
            key.expiring.clear()

    def publish_due(self) -> None:
        """Publishes everything that waits for its time, as if it had come: the fake has no clock."""
        due, self.delayed = sorted(self.delayed, key=lambda one: one[0]), []
        for one in due:
            _, name, chunk, ttl_ms = one
            try:
                self._publish(name, chunk, mandatory=False, ttl_ms=ttl_ms)
            except (NotOwner, ResourceExhausted):
                self.delayed.append(one)  # As at a real slice: it tries again later.

    def _publish_live(self, name: bytes, chunk: bytes, mandatory: bool) -> tuple[list[int], list[int]]:
        self.check_owner(name)
        bound = self.bound_to(name)
        if mandatory and not bound:
            raise Unroutable(f"key {show(name)} has no bindings", subject=show(name))
        self.live.append((name, chunk, bound))
        return [0], [len(bound)]

    def take_live(self) -> list[tuple[bytes, bytes, list[bytes]]]:
        """Returns the live chunks since the last look: key, chunk, queues."""
        found, self.live = self.live, []
        return found

    def check_owner(self, *keys: bytes) -> None:
        """Raises NotOwner for a key of another slice."""
        for key in keys:
            if not key.startswith(DIRECT_PREFIX) and self._owner_of(key) != self.name:
                owner, version = self._owner_of(key), self._version()
                raise NotOwner(f"key {show(key)} is of slice {owner}", map_version=version, owner=owner)

    def gaps(self, queue: bytes) -> Iterator[wire.Gap]:
        """Yields what the queue still had to get and its keys do not keep any more; then it is done."""
        for name, key in self.keys.items():
            binding = key.bindings.get(queue)
            if binding is None:
                continue
            gone = [(wire.GAP_REASON_EXPIRED, *span) for span in key.expired]
            for why, low, high in [*gone, (wire.GAP_REASON_DROPPED, binding.start, key.low)]:
                for first, to in _runs(max(low, binding.start), min(high, binding.end or high), binding):
                    binding.done.update(range(first, to))
                    yield wire.Gap(key=name, first=first, to=to, why=why)

    def take(
        self, queue: bytes, session: object, messages_max: int, peek: bool = False, bytes_max: int = 0
    ) -> Iterator[Given]:
        """Yields what may be given of a queue now, in order of each key; it is the session's then. `bytes_max`: of
        bodies, though the last chunk may exceed it; 0: no bound."""
        left_bytes = bytes_max or sys.maxsize
        for name, key in self.keys.items():
            binding = key.bindings.get(queue)
            if binding is None:
                continue
            for first, end, chunk in key.chunks:
                low, high = max(first, binding.start), min(end, binding.end or end)
                for start, stop in _runs(low, high, binding):
                    stop = min(stop, start + messages_max)
                    if not peek:
                        stop = min(stop, start + KEY_UNACKED_MAX - len(binding.given))
                    if start >= stop or left_bytes <= 0:
                        continue
                    if bytes_max:
                        left_bytes -= sum(map(len, parse_chunk(chunk).bodies[start - first : stop - first]))
                    messages_max -= stop - start
                    again = binding.times_given.get(start, 0)
                    if not peek:
                        self._takes += 1
                        self.note_given(queue, name, start, stop, session, self._takes)
                        for offset in range(start, stop):
                            binding.given[offset] = session
                            binding.given_as[offset] = self._takes
                            binding.times_given[offset] = again + 1
                    yield name, first, start, stop, chunk, again

    def ack(self, queue: bytes, ack: wire.Ack, session: object | None) -> None:
        """Records an ack of what the session has of a queue; None: of what anyone has."""
        binding = self.keys.get(ack.key, Key()).bindings.get(queue)
        if binding is not None:
            low: int = ack.low
            for offset in [
                at for at, holder in binding.given.items() if low <= at < ack.to and session in (None, holder)
            ]:
                binding.done.add(offset)
                del binding.given[offset]

    def ack_anywhere(self, queue: bytes, ack: wire.Ack) -> None:
        """Records an ack of what a queue has, whether it is given to anyone or not."""
        key = self.keys.get(ack.key, Key())
        binding = key.bindings.get(queue)
        if binding is not None:
            for offset in range(max(ack.low, binding.start), min(ack.to, binding.end or key.head)):
                binding.done.add(offset)
                binding.given.pop(offset, None)

    def nack(self, queue: bytes, ack: wire.Ack, session: object | None, holder: object, unseen: bool) -> None:
        """Gives what the session has of a queue (None: what anyone has) to `holder`, until `release` takes it back: so
        a delay is kept. What was delivered as often as may be is dead. `unseen`: this delivery does not count."""
        binding = self.keys.get(ack.key, Key()).bindings.get(queue)
        if binding is not None:
            low: int = ack.low
            for offset in [at for at, had in binding.given.items() if low <= at < ack.to and session in (None, had)]:
                if unseen:
                    del binding.given[offset]
                    binding.times_given[offset] -= 1
                    continue
                binding.given[offset] = holder
                self._end_if_dead(queue, ack.key, binding, offset, b"nack")

    def time_out(self, queue: bytes, name: bytes, offsets: range, session: object, given_as: int) -> bool:
        """Takes back what a session has not acked in time, of the take with this number. Returns whether there was
        any."""
        binding = self.keys.get(name, Key()).bindings.get(queue)
        if binding is None:
            return False
        late = [at for at in offsets if binding.given.get(at) is session and binding.given_as[at] == given_as]
        for offset in late:
            if not self._end_if_dead(queue, name, binding, offset, b"timeout"):
                del binding.given[offset]
        return bool(late)

    def _end_if_dead(self, queue: bytes, name: bytes, binding: Binding, offset: int, reason: bytes) -> bool:
        """Ends a message that came back, if it was delivered as often as may be, and sends its copy. Returns whether
        it did."""
        options = self.queues.parts[queue].options
        times = binding.times_given[offset]
        if not 0 < options.max_deliveries <= times:
            return False
        del binding.given[offset]
        binding.done.add(offset)
        dead_letter = encode_name(options.dead_letter, "dead_letter") if options.dead_letter else name
        first, _, chunk = next(one for one in self.keys[name].chunks if one[0] <= offset < one[1])
        why = {
            "shoal-reason": reason,
            "shoal-key": name,
            "shoal-offset": b"%d" % offset,
            "shoal-queue": queue,
            "shoal-deliveries": b"%d" % times,
        }
        copy = copy_of(chunk, offset - first, dead_letter, why)
        if copy is not None:
            self.send_letter(dead_letter, copy)
        return True

    def take_letter(self, name: bytes, chunk: bytes) -> None:
        """Publishes a dead letter or a farewell, also to a key that is full."""
        key = self.keys.setdefault(name, Key())
        options, key.options = key.options, replace(key.options, capacity_messages=0, capacity_bytes=0)
        self._publish(name, chunk, mandatory=False)
        key.options = options

    def is_unacked(self, queue: bytes, ack: wire.Ack) -> bool:
        """Returns whether the queue still has to get or to ack some of these messages."""
        key = self.keys.get(ack.key, Key())
        binding = key.bindings.get(queue)
        if binding is None:
            return False
        named = range(max(ack.low, binding.start), min(ack.to, binding.end or key.head))
        return bool(set(named) - binding.done)

    def unacked(self, queue: bytes, session: object) -> int:
        """Returns how many messages of a queue the session has unacked."""
        bindings = [key.bindings[queue] for key in self.keys.values() if queue in key.bindings]
        return sum(holder is session for binding in bindings for holder in binding.given.values())

    def release(self, session: object, queue: bytes | None = None, reason: bytes = b"left") -> None:
        """Takes back what a session has unacked, of one queue or of all: it may be given again, unless it is dead."""
        back: list[tuple[bytes, int, bytes, Binding]] = []
        for key_name, key in self.keys.items():
            for name, binding in key.bindings.items():
                if queue in (None, name):
                    back += [(name, at, key_name, binding) for at, had in binding.given.items() if had is session]
        for name, offset, key_name, binding in back:
            if not self._end_if_dead(name, key_name, binding, offset, reason):
                del binding.given[offset]

    def consumed(self, queue: bytes) -> bool:
        """Returns whether a session consumes a queue: it has it attached, or messages of it out."""
        return self.used(queue) or any(
            bool(key.bindings[queue].given) for key in self.keys.values() if queue in key.bindings
        )

    def describe(self, question: wire.Describe) -> wire.Description:
        """Describes queues and keys. Raises ResourceExhausted, NotOwner."""
        self.check_owner(*question.keys)
        queues = [self._describe_queue(queue) for queue in question.queues]
        bindings = sum(queue.binding_count for queue in queues)
        if bindings > self.describe_bindings_max:
            raise ResourceExhausted(
                f"the queues of one describe have {bindings} bindings; the limit is {self.describe_bindings_max}",
                subject=DESCRIBE_BINDINGS_SUBJECT,
                limit=self.describe_bindings_max,
                value=bindings,
            )
        return wire.Description(
            queues=queues,
            keys=[self._describe_key(key) for key in question.keys],
        )

    def _describe_queue(self, queue: bytes) -> wire.QueueDescription:
        found = self.queues.parts.get(queue)
        description = wire.QueueDescription(queue=queue, exists=found is not None)
        if found is not None:
            description.attached_sessions = int(self.used(queue))
            description.consumed = self.consumed(queue)
            description.options.CopyFrom(found.options.to_wire())
            description.incarnation = found.incarnation if self.queues.knows_incarnations else 0
            self.farewells.describe(queue, description)
        for name, key in self.keys.items():
            binding = key.bindings.get(queue)
            if binding is not None and not _is_unused(name, key, binding):
                offsets = set(range(max(binding.start, key.low), binding.end or key.head)) - binding.done
                description.binding_count += 1
                description.messages += len(offsets)
                unacked = len(binding.given)
                description.unacked += unacked
                counts = {"messages": len(offsets), "unacked": unacked, "full": unacked >= KEY_UNACKED_MAX}
                description.bindings.add(key=name, start=binding.start, end=binding.end, **counts)
        return description

    def _describe_key(self, name: bytes) -> wire.KeyDescription:
        key = self.keys.get(name, Key())
        options = None if key.options == PLAIN else key.options.to_wire()
        bound = len(key.bindings)
        return wire.KeyDescription(key=name, exists=name in self.keys, head=key.head, queues=bound, options=options)


def _is_unused(name: bytes, key: Key, binding: Binding) -> bool:
    """Returns whether a queue's direct key was not used in this life: a real slice binds it when it is."""
    return name.startswith(DIRECT_PREFIX) and binding.start == key.head


def _copied(binding: Binding) -> Binding:
    given, times = dict(binding.given), dict(binding.times_given)
    return Binding(binding.start, binding.end, set(binding.done), given, times)


def _fit_capacity(name: bytes, key: Key, chunk: bytes) -> None:
    """Lets the oldest chunks go if the key's policy says so. Raises ResourceExhausted if the key would keep more than
    its capacity."""
    beyond = _beyond_capacity(key, [] if key.options.drops_oldest else key.chunks, chunk)
    if beyond is not None:
        raise ResourceExhausted(f"key {show(name)} is full", subject=show(name), limit=beyond[0], value=beyond[1])
    while _beyond_capacity(key, key.chunks, chunk) is not None:
        key.chunks.pop(0)


def _beyond_capacity(key: Key, chunks: list[tuple[int, int, bytes]], chunk: bytes) -> tuple[int, int] | None:
    """Returns (limit, value) of the capacity that the key would go beyond with these chunks and one more; None if it
    would not. What a queue has to get counts, and history."""
    options = key.options
    lows = [
        next(iter(sorted(set(range(one.start, one.end or key.head)) - one.done)), key.head)
        for one in key.bindings.values()
    ]
    lows.append(FIRST_OFFSET if options.history_age_s else key.head - options.history_messages)
    kept = [parse_chunk(chunk).bodies, *(parse_chunk(one).bodies for _, end, one in chunks if end > min(lows))]
    for limit, value in (
        (options.capacity_messages, sum(map(len, kept))),
        (options.capacity_bytes, sum(len(body) for bodies in kept for body in bodies)),
    ):
        if 0 < limit < value:
            return limit, value
    return None


def refused_first(outcome: bytes) -> Error | None:
    """Returns the first refusal of a change, as an atomic one is answered with it."""
    return next((one.error for step in wire.Outcome.FromString(outcome).steps for one in step.refusals), None)


def _runs(low: int, high: int, binding: Binding) -> list[tuple[int, int]]:
    """Returns the offsets low <= offset < high that are neither done nor given, as ranges of those that were given
    equally often."""
    runs: list[tuple[int, int]] = []
    for offset in range(low, high):
        if offset in binding.done or offset in binding.given:
            continue
        times = binding.times_given.get
        if runs and runs[-1][1] == offset and times(offset, 0) == times(offset - 1, 0):
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    return runs
