"""Says what the node owes: each message of each queue's life, and the farewell of each queue. It knows nothing of the
core; `world.py` tells it what was done and what came."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

LATE_MS = 2_500
"""A farewell, or the end of a queue, comes within five ticks."""


@dataclass
class Farewell:
    """Keeps a farewell as it was set, and when."""

    body: bytes
    after_s: int
    set_ms: int


@dataclass
class Binding:
    """Keeps what a queue is owed of a key. `doubtful`: acked, or told as a gap, before a crash, so lost perhaps."""

    owed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)


@dataclass
class Queue:
    """Keeps a life of a queue. `idle_ms`: when it was consumed last, or said that its time begins anew."""

    expires_after_s: int
    idle_ms: int
    bindings: dict[str, Binding]
    is_exclusive: bool
    farewell: Farewell | None = None


@dataclass
class Model:
    """Keeps all queues and messages. `expires`: when each message expires, by the node's clock; 0: never."""

    queues: dict[str, Queue] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: 1))
    bodies: dict[tuple[str, int], bytes] = field(default_factory=dict)
    expires: dict[tuple[str, int], int] = field(default_factory=dict)
    chunks: dict[tuple[str, int], int] = field(default_factory=dict)
    """The first offset of the chunk of each message."""
    dropped_below: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    said: list[bytes] = field(default_factory=list)
    to_be_said: set[bytes] = field(default_factory=set)
    may_be_said: set[bytes] = field(default_factory=set)
    """Farewells that were due when others were set in their place: the record that says them may have been first."""

    def published(self, key: str, first: int, bodies: list[bytes], expires_ms: int, capacity: int, drops: bool) -> None:
        """Notes a publish that the node took. Checks that it had room for it."""
        assert first >= self.heads[key], f"offset {first} of {key} is used twice"
        for offset, body in enumerate(bodies, first):
            self.bodies[key, offset], self.expires[key, offset] = body, expires_ms
            self.chunks[key, offset] = first
            for queue in self.queues.values():
                if key in queue.bindings:
                    queue.bindings[key].owed.add(offset)
        self.heads[key] = first + len(bodies)
        if drops:
            self.dropped_below[key] = max(self.dropped_below[key], self.heads[key] - capacity)

    def kept_max(self, key: str) -> int:
        """Returns how many messages of a key may be kept, once acks are written: those from the chunk on that has the
        first one that a queue may have to get."""
        bindings = [queue.bindings[key] for queue in self.queues.values() if key in queue.bindings]
        first = min(
            (offset for binding in bindings for offset in binding.owed | binding.doubtful), default=self.heads[key]
        )
        return self.heads[key] - self.chunks.get((key, first), first)

    def is_over(self, key: str, offset: int, now_ms: int) -> bool:
        """Returns whether a message is expired at a time."""
        return 0 < self.expires[key, offset] <= now_ms

    def delivered(self, name: str, key: str, offset: int, body: bytes, ticked_ms: int) -> None:
        """Checks a delivery: it is what was published, it is owed, and it was not expired at the last tick."""
        assert self.bodies.get((key, offset)) == body, f"{key} {offset} is another message"
        assert not self.is_over(key, offset, ticked_ms), f"{name} {key} {offset} was delivered though it had expired"
        binding = self.queues[name].bindings[key]
        if offset in binding.doubtful:
            binding.doubtful.discard(offset)
            binding.owed.add(offset)
        assert offset in binding.owed, f"{name} {key} {offset} was delivered though it is not owed"

    def gap(self, name: str, key: str, first: int, to: int, now_ms: int) -> None:
        """Checks a gap: it tells only of what is gone."""
        binding = self.queues[name].bindings[key]
        for offset in range(first, to):
            if (key, offset) in self.bodies:
                gone = self.is_over(key, offset, now_ms) or offset < self.dropped_below[key]
                assert gone, f"{name} was told that {key} {offset} is gone"
                if offset in binding.owed:
                    binding.owed.discard(offset)
                    binding.told.add(offset)

    def acked(self, name: str, key: str, offset: int) -> None:
        """Notes an ack."""
        binding = self.queues[name].bindings[key]
        if offset in binding.owed:
            binding.owed.discard(offset)
            binding.acked.add(offset)

    def crashed(self, now_ms: int) -> None:
        """Notes a crash: acks since the last flush may be lost, gaps may be told again, and all times begin anew."""
        for queue in self.queues.values():
            queue.idle_ms = now_ms
            for binding in queue.bindings.values():
                binding.doubtful |= binding.acked | binding.told
                binding.acked.clear()

    def heard(self, body: bytes) -> None:
        """Notes that a farewell was said. Checks that it is said once, and that it was to be said."""
        assert body not in self.said, f"the farewell {body!r} is said twice"
        self.said.append(body)
        known = body in self.to_be_said or body in self.may_be_said
        assert known, f"the farewell {body!r} is said, and no queue had it or was left for so long"
        self.to_be_said.discard(body)

    def check_time(self, name: str, now_ms: int, is_consumed: bool, has_farewell: bool, is_there: bool) -> None:
        """Checks after a tick that the farewell and the end of a queue came neither early nor late."""
        queue = self.queues[name]
        farewell = queue.farewell
        idle_ms = now_ms - queue.idle_ms
        if not is_there:
            assert queue.expires_after_s and not is_consumed, f"{name} is gone"
            assert idle_ms >= 1000 * queue.expires_after_s, f"{name} ended early, after {idle_ms} ms"
            if farewell:
                self.to_be_said.add(farewell.body)
            del self.queues[name]
            return
        if not is_consumed and queue.expires_after_s:
            assert idle_ms < 1000 * queue.expires_after_s + LATE_MS, f"{name} ends late, after {idle_ms} ms"
        if farewell is None:
            assert not has_farewell, f"{name} has a farewell that it was not given"
            return
        idle_ms = min(idle_ms, now_ms - farewell.set_ms)
        if has_farewell:
            late = not is_consumed and idle_ms >= 1000 * farewell.after_s + LATE_MS
            assert not late, f"the farewell of {name} comes late, after {idle_ms} ms"
        else:
            assert not is_consumed, f"the farewell of {name} was said, or lost, while it was consumed"
            assert idle_ms >= 1000 * farewell.after_s, f"the farewell of {name} came early, after {idle_ms} ms"
            self.to_be_said.add(farewell.body)
            queue.farewell = None
