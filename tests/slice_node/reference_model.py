"""What a slice must do, in plain sets: docs/concepts.md without any of the core's structures. No speed, no bounds.

A binding is the set of offsets that its queue still has to get (`left`). What that page leaves open (when a key without
bindings vanishes, how much of a log is kept for nobody) is answered by what the core said, if that is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal_contract.wire import slice_pb2 as wire


@dataclass
class Binding:
    """`end` 0: live. `given`: offset -> session number that has it out. `resting`: offset -> when it may be given
    again; None: its delay begins with the next tick."""

    start: int
    left: set[int]
    end: int = 0
    given: dict[int, int] = field(default_factory=dict)
    resting: dict[int, int | None] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """What the key gave up before a session had it: to be told as a gap."""
    held: dict[int, int] = field(default_factory=dict)
    """What the key gave up while a session had it out, which still has it: offset -> session number."""

    def holders(self) -> set[int]:
        """The sessions that have something out."""
        return {*self.given.values(), *self.held.values()}

    @property
    def gone(self) -> bool:
        return bool(self.end) and not self.left


@dataclass
class Key:
    """`head` is known while somebody needs the key. `used`: the highest offset it ever gave."""

    head: int = 0
    used: int = 0
    messages: dict[int, bytes] = field(default_factory=dict)
    history: int = 0
    """How many messages the key keeps after all have them. Then it stays, whatever is bound."""
    remembered: int = 0
    """How many of its last messages it must have for that."""
    capacity: int = 0
    """How many messages it keeps at most: the oldest chunks make room."""
    chunks: list[int] = field(default_factory=list)
    """The first offset of each."""


class ReferenceModel:
    def __init__(self) -> None:
        self.queues: dict[str, dict[str, Binding]] = {}
        self.keys: dict[str, Key] = {}
        self.zombies: dict[str, int] = {}
        """Bindings of dropped queues that the core may still count, by key."""
        self.delayed: list[tuple[int, str, list[bytes], int]] = []
        """Publishes that wait: time, key, bodies, ttl; in the order in which they came."""
        self.fresh: set[tuple[str, int]] = set()
        """Key and offset of what was published since the last look for what capacities gave up."""
        self.brief: set[tuple[str, int]] = set()
        """What was published and given up by one record: it may be given to a session all the same, or be a gap."""

    def key(self, name: str) -> Key:
        return self.keys.setdefault(name, Key())

    def members(self, key: str) -> list[Binding]:
        return [bindings[key] for bindings in self.queues.values() if key in bindings]

    def live(self, key: str) -> int:
        return sum(1 for binding in self.members(key) if not binding.end)

    def declare(self, queue: str) -> None:
        self.queues.setdefault(queue, {})

    def drop(self, queue: str) -> None:
        for key in self.queues.pop(queue):
            self.zombies[key] = self.zombies.get(key, 0) + 1

    def bind(self, queue: str, name: str, start: wire.Start.ValueType, value: int, answer: int) -> None:
        """`answer`: the offset that the core returned."""
        bindings, key, others = self.queues[queue], self.key(name), self.members(name)
        old = bindings.get(name)
        if old is not None and not old.end:
            assert answer == old.start, "a second bind changes nothing"
            return
        if others or key.history:
            assert answer <= key.head
        else:
            assert answer > 0
            self._unneeded(key, start, answer)
        if start == wire.START_UNSPECIFIED:
            assert answer == key.head
        else:
            wanted = self.wanted_from(name, start, value)
            assert wanted <= answer <= max(wanted, self.kept_from(name))
        seen = set(range(answer, key.head))
        if old is None:
            bindings[name] = Binding(answer, seen)
        else:  # besides what it still had to get below; what is out stays out
            bindings[name] = Binding(answer, old.left | seen, lost=old.lost, given=old.given, resting=old.resting)
            bindings[name].held = old.held

    def wanted_from(self, name: str, start: wire.Start.ValueType, value: int) -> int:
        """Where a bind is asked to begin, whatever is kept."""
        return {wire.START_EARLIEST: 0, wire.START_OFFSET: value}.get(start, self.key(name).head - value)

    def kept_from(self, name: str) -> int:
        """All from here on is still to be given, or remembered: the key must have it."""
        key = self.key(name)
        needed = [offset for binding in self.members(name) for offset in binding.left]
        return min([key.head - key.remembered, *needed])

    def _unneeded(self, key: Key, start: wire.Start.ValueType, answer: int) -> None:
        """Nobody needed the key: it may have vanished and begin anew, above all it ever had."""
        if start == wire.START_UNSPECIFIED:
            assert answer > key.used
            key.head = answer
        elif answer > key.used:
            key.head = answer
        else:
            key.head = key.used + 1

    def unbind(self, queue: str, name: str, discard: bool, answer: int) -> None:
        binding = self.queues[queue].get(name)
        if binding is None or binding.end:
            assert answer == 0
        else:
            assert answer == self.key(name).head
            binding.end = answer
            if not binding.left:
                binding.lost.clear()  # Nothing is kept for it, so it vanishes, and hears nothing.
        if binding is not None:
            if discard:
                binding.left.clear()
                binding.resting.clear()
            self._tidy(queue, name)

    def configure(self, name: str, history: int, head: int, capacity: int = 0) -> None:
        """`head`: that of the core's key, which may be another one than the last; 0: there is none. `capacity`: beyond
        it the oldest go."""
        key = self.key(name)
        if not self.members(name) and not key.history:
            assert not head or head > key.used
            key.head = head or key.used + 1
        key.remembered = min(history, key.remembered) if history else 0
        key.history, key.capacity = history, capacity

    def purge(self, queue: str) -> None:
        """Nothing is left to get, and nothing is out."""
        for name, binding in list(self.queues[queue].items()):
            binding.lost.clear()
            binding.left.clear()
            binding.given.clear()
            binding.held.clear()
            binding.resting.clear()
            self._tidy(queue, name)

    def publish(self, name: str, bodies: list[bytes], offset: int, routed: int, ttl_ms: int = 0) -> None:
        """`ttl_ms`: see lifetimes_model.py; here nothing expires."""
        if name[0] == "@" and name[1:] in self.queues and name not in self.queues[name[1:]]:
            key = self.key(name)
            assert offset > key.used
            key.head = offset
            self.queues[name[1:]][name] = Binding(offset, set())
        live = self.live(name)
        assert live <= routed <= live + self.zombies.get(name, 0)
        key = self.key(name)
        if not routed and not key.history:
            assert offset == 0
            return
        if self.members(name) or key.history:
            assert offset == key.head, "offsets are consecutive"
        assert offset > key.used, "an offset never names two messages"
        key.head = offset + len(bodies)
        key.used = key.head - 1
        key.remembered = min(key.history, key.remembered + len(bodies))
        key.messages.update(zip(range(offset, key.head), bodies, strict=True))
        key.chunks.append(offset)
        self.fresh.update((name, fresh) for fresh in range(offset, key.head))
        for binding in self.members(name):
            if not binding.end:
                binding.left.update(range(offset, key.head))

    def give_up(self, name: str, low: int) -> None:
        """The core's key keeps messages from `low` on."""
        key = self.key(name)
        if not key.capacity:
            return
        assert key.head - low <= key.capacity
        for binding in self.members(name):
            gone = {offset for offset in binding.left if offset < low}
            self.brief.update((name, offset) for offset in gone if (name, offset) in self.fresh)
            for offset in gone:
                chunk = max(first for first in key.chunks if first <= offset)
                assert key.head - chunk > key.capacity, "it need not have gone"
            binding.lost |= gone - set(binding.given)
            binding.left -= gone
            binding.held |= {offset: holder for offset, holder in binding.given.items() if offset in gone}
            binding.given = {offset: holder for offset, holder in binding.given.items() if offset not in gone}
            binding.resting = {offset: at for offset, at in binding.resting.items() if offset not in gone}
        for queue in list(self.queues):
            if name in self.queues[queue]:
                self._tidy(queue, name)

    def told(self, queue: str, name: str, first: int, to: int, why: int) -> None:
        """A consumer of the queue was told of a gap. `why`: see lifetimes_model.py."""
        binding = self.queues.get(queue, {}).get(name)
        if binding is not None:
            gone = set(range(first, to))
            assert not gone & binding.left, "it is still to be given"
            binding.lost -= gone

    def delay(self, name: str, bodies: list[bytes], not_before_ms: int, ttl_ms: int = 0) -> None:
        self.delayed.append((not_before_ms, name, bodies, ttl_ms))

    def take_due(self, wall_ms: int) -> list[tuple[str, list[bytes], int]]:
        """What has to be published now, in its order."""
        due = sorted((one for one in self.delayed if one[0] <= wall_ms), key=lambda one: one[0])
        self.delayed = [one for one in self.delayed if one[0] > wall_ms]
        return [one[1:] for one in due]

    def given(self, queue: str, name: str, offset: int, body: bytes, session: int) -> None:
        """The core gave this message of this queue to a session."""
        assert self.key(name).messages[offset] == body
        binding = self.queues[queue].get(name)
        if binding is not None and offset in binding.lost and (name, offset) in self.brief:
            binding.lost.remove(offset)
            return
        assert binding is not None and offset in binding.left, "acked, discarded, or published while not bound"
        assert offset not in binding.given, "one session at a time has it"
        assert offset not in binding.resting, "it was nacked with a delay, which is not over"
        binding.given[offset] = session

    def ack(self, queue: str, name: str, low: int, to: int, session: int) -> None:
        binding = self.queues.get(queue, {}).get(name)
        if binding is None:
            return
        for offset in [o for o, holder in binding.given.items() if low <= o < to and holder == session]:
            del binding.given[offset]
            binding.left.discard(offset)
        self._end_held(binding, low, to, session)
        self._tidy(queue, name)

    @staticmethod
    def _end_held(binding: Binding, low: int, to: int, session: int | None) -> None:
        held = binding.held.items()
        binding.held = {o: holder for o, holder in held if not low <= o < to or session not in (None, holder)}

    def nack(self, queue: str, name: str, low: int, to: int, session: int, delayed: bool, unseen: bool = False) -> None:
        """`unseen`: see options_model.py."""
        binding = self.queues.get(queue, {}).get(name)
        if binding is None:
            return
        for offset in [o for o, holder in binding.given.items() if low <= o < to and holder == session]:
            del binding.given[offset]
            if delayed:
                binding.resting[offset] = None
        self._end_held(binding, low, to, session)

    def tick(self, now_ms: int, delay_ms: int) -> None:
        """Delays begin, and some are over."""
        for binding in [binding for bindings in self.queues.values() for binding in bindings.values()]:
            due = {o: now_ms + delay_ms if at is None else at for o, at in binding.resting.items()}
            binding.resting = {offset: at for offset, at in due.items() if at > now_ms}

    def has_left(self, queue: str, name: str, low: int, to: int) -> bool:
        """Whether the queue has all of these messages still to get."""
        binding = self.queues.get(queue, {}).get(name)
        return binding is not None and set(range(low, to)) <= binding.left

    def ack_in_change(self, queue: str, name: str, low: int, to: int) -> None:
        """Whoever has the messages out."""
        binding = self.queues.get(queue, {}).get(name)
        if binding is not None:
            binding.left -= set(range(low, to))
            binding.given = {offset: holder for offset, holder in binding.given.items() if not low <= offset < to}
            binding.resting = {offset: at for offset, at in binding.resting.items() if not low <= offset < to}
            self._end_held(binding, low, to, None)
            self._tidy(queue, name)

    def back(self, queue: str, session: int) -> None:
        """What this session had out of a queue is there again."""
        for binding in self.queues.get(queue, {}).values():
            binding.given = {offset: holder for offset, holder in binding.given.items() if holder != session}
            binding.held = {offset: holder for offset, holder in binding.held.items() if holder != session}

    def depth(self, queue: str) -> tuple[int, int]:
        """Messages and body bytes."""
        left = [(name, offset) for name, binding in self.queues[queue].items() for offset in binding.left]
        return len(left), sum(len(self.keys[name].messages[offset]) for name, offset in left)

    def _tidy(self, queue: str, name: str) -> None:
        if self.queues[queue][name].gone:
            del self.queues[queue][name]
