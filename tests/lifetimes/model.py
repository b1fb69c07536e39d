"""Says what the node owes: each message of each queue's life, and the farewell of each queue. It knows nothing of the
core; `world.py` tells it what was done and what came.

Belongs here: messages, and when they go. Not here: what becomes of one message of one queue (bindings.py), times of
queues (farewells.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal_contract.options import KeyOptions, QueueOptions
from tests.lifetimes.bindings import Binding
from tests.lifetimes.farewells import Farewells, Timer


class Message(NamedTuple):
    """Keeps a message. `expires_ms`: by the machine's clock; 0: never. `chunk`: the first offset of its chunk."""

    body: bytes
    time_ms: int
    expires_ms: int
    chunk: int


class Delayed(NamedTuple):
    """Keeps a publish that waits for its time."""

    not_before_ms: int
    number: int
    bodies: list[bytes]
    ttl_ms: int


@dataclass
class Model:
    """Keeps all queues and messages. `latest_ms`: the latest time that any leader was told, or a record has. `late_ms`:
    within which time things come. `delayed`: by key, in the order in which they are published."""

    options: dict[str, KeyOptions]
    late_ms: int
    queues: dict[str, dict[str, Binding]] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=lambda: defaultdict(dict))
    heads: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: 1))
    dropped_below: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    farewells: Farewells = field(default_factory=Farewells)
    latest_ms: int = 0
    delayed: dict[str, list[Delayed]] = field(default_factory=lambda: defaultdict(list))

    def declare(self, name: str, options: QueueOptions, keys: Iterable[str], now_ms: int) -> None:
        self.queues[name] = {key: Binding(options) for key in keys}
        self.farewells.timers[name] = Timer(options.expires_after_s, now_ms)

    def options_of(self, name: str) -> QueueOptions:
        return next(iter(self.queues[name].values())).options

    def bindings(self) -> list[tuple[str, str, Binding]]:
        return [(name, key, binding) for name, queue in self.queues.items() for key, binding in queue.items()]

    def members(self, key: str) -> list[Binding]:
        return [queue[key] for queue in self.queues.values() if key in queue]

    # What goes into a key, and leaves it.

    def published(self, key: str, first: int, bodies: list[bytes], time_ms: int, ttl_ms: int) -> None:
        """Notes a publish that the node took."""
        assert first >= self.heads[key], f"offset {first} of {key} is used twice"
        assert first == self.heads[key] or not self.options[key].keeps_history, f"{key} skips offsets before {first}"
        for offset, body in enumerate(bodies, first):
            self.messages[key][offset] = Message(body, time_ms, time_ms + ttl_ms if ttl_ms else 0, first)
            for binding in self.members(key):
                binding.owed.add(offset)
        self.heads[key] = first + len(bodies)
        options = self.options[key]
        if options.drops_oldest:
            low, messages = self.heads[key] - options.capacity_messages, self.messages[key]
            chunks = [offset for offset in range(max(1, low), self.heads[key]) if messages[offset].chunk == offset]
            self.dropped_below[key] = max(self.dropped_below[key], chunks[0] if low > 1 else 0)
        elif options.capacity_messages:
            kept = self.heads[key] - min(self.owed_for_sure(key), default=first)
            assert kept <= options.capacity_messages, f"{key} has {kept} messages, more than its capacity"

    def wanted(self, key: str, last: int | None, since_ms: int | None) -> int:
        """Returns where a bind is asked to begin: at the last so many messages, at the first one since a time, or at
        the earliest."""
        if since_ms is not None:
            recent = (offset for offset, message in self.messages[key].items() if message.time_ms >= since_ms)
            return min(recent, default=self.heads[key])
        return 0 if last is None else max(0, self.heads[key] - last)

    def begins_at(self, name: str, key: str, first: int, wanted: int) -> None:
        """Notes where a new binding begins. Checks that it lacks nothing that is kept."""
        kept = min(self.remembered(key) | self.owed_for_sure(key), default=self.heads[key])
        assert wanted <= first <= max(wanted, kept), f"{name} begins {key} at {first}, not at {wanted}; {kept} is kept"
        self.queues[name][key].owed.update(range(first, self.heads[key]))

    def remembered(self, key: str) -> set[int]:
        """Returns what the key's history has to have."""
        options, head = self.options[key], self.heads[key]
        return {
            offset
            for offset, message in self.messages[key].items()
            if not self.is_gone(key, offset)
            and (
                offset >= head - options.history_messages
                or message.time_ms > self.latest_ms - 1000 * options.history_age_s
            )
        }

    def delay(self, key: str, not_before_ms: int, bodies: list[bytes], ttl_ms: int) -> None:
        """Notes a publish that is to wait."""
        delayed = self.delayed[key]
        number = max((one.number for one in delayed), default=0) + 1
        self.delayed[key] = sorted([*delayed, Delayed(not_before_ms, number, bodies, ttl_ms)])

    def came_due(self, key: str, head: int, time_ms: int, wall_ms: int) -> None:
        """Notes that the key's head is `head`: what waited was published up to there, at this time at the latest.
        Checks that it was not early, and that nothing is late."""
        delayed = self.delayed[key]
        while self.heads[key] < head:
            assert delayed, f"{key} has messages up to {head}, and nobody published those from {self.heads[key]} on"
            one = delayed.pop(0)
            assert one.not_before_ms <= time_ms, f"{key} {self.heads[key]} was published early"
            self.published(key, self.heads[key], one.bodies, time_ms, one.ttl_ms)
        assert self.heads[key] == head, f"the head of {key} is {head}, and not {self.heads[key]}"
        late = [one for one in delayed if one.not_before_ms + self.late_ms <= wall_ms]
        assert not late, f"{late} were not published to {key}"

    def owed_for_sure(self, key: str) -> set[int]:
        """Returns what the key has to keep for its queues."""
        owed = {offset for binding in self.members(key) for offset in binding.owed if not binding.may_have_died(offset)}
        return {offset for offset in owed if not self.is_gone(key, offset)}

    def kept_max(self, key: str) -> int:
        """Returns how many messages of a key may be kept, once acks are written: those from the chunk on that has the
        first one that a queue may have to get."""
        first = min((o for one in self.members(key) for o in one.owed | one.doubtful), default=self.heads[key])
        message = self.messages[key].get(first)
        return self.heads[key] - (first if message is None else message.chunk)

    def is_over(self, key: str, offset: int, at_ms: int) -> bool:
        """Returns whether a message is expired at a time."""
        return 0 < self.messages[key][offset].expires_ms <= at_ms

    def is_gone(self, key: str, offset: int) -> bool:
        """Returns whether a message may have expired, or was dropped."""
        return self.is_over(key, offset, self.latest_ms) or offset < self.dropped_below[key]

    # What comes to consumers.

    def delivered(
        self, name: str, key: str, offset: int, body: bytes, session: int, redelivered: int, told_ms: int, now_ms: int
    ) -> None:
        """Checks a delivery: it is what was published, it is owed, and it was not expired by what the leader was told.
        `told_ms`: by the machine's clock, `now_ms`: by the one that only grows."""
        known = self.messages[key].get(offset)
        assert known is not None and known.body == body, f"{key} {offset} is another message"
        assert not self.is_over(key, offset, told_ms), f"{name} {key} {offset} was delivered though it had expired"
        self.queues[name][key].given(offset, session, redelivered, now_ms)

    def gap(self, name: str, key: str, first: int, to: int, may_span: bool) -> None:
        """Checks a gap: it tells only of what is gone, and that no session has. `may_span`: it may be the last of so
        many that it spans all the others."""
        binding = self.queues[name][key]
        for offset in range(first, to):
            if offset in self.messages[key]:
                assert self.is_gone(key, offset), f"{name} was told that {key} {offset} is gone"
                assert may_span or offset not in binding.out, f"{name} was told that {key} {offset} is gone, and has it"
                binding.is_gone(offset)

    def copied(self, name: str, key: str, offset: int, body: bytes, times: int, reason: str, told_ms: int) -> None:
        """Checks a copy at the dead-letter key. `told_ms`: what the leader was told last before it could be made."""
        assert self.messages[key][offset].body == body, f"the copy of {key} {offset} is another message"
        assert not self.is_over(key, offset, told_ms), f"{key} {offset} is copied though it had expired"
        self.queues[name][key].copied(offset, times, reason)

    # Time.

    def ticks(self, now_ms: int) -> None:
        for _, _, binding in self.bindings():
            binding.ticks(now_ms)

    def check_dead(self, now_ms: int) -> None:
        """Checks that what came back as often as may be is copied, unless it is gone or has no place to go."""
        for name, key, binding in self.bindings():
            for offset, died_ms in list(binding.died_ms.items()):
                if now_ms - died_ms >= self.late_ms:
                    gone = not binding.options.dead_letter or self.is_gone(key, offset)
                    assert gone, f"there is no copy of {key} {offset}, which {name} could not do"
                    binding.ends(offset)

    def flushed(self) -> None:
        """Notes that all acks are journaled: a crash takes none back."""
        for _, _, binding in self.bindings():
            binding.acked.clear()

    def crashed(self, now_ms: int) -> None:
        self.farewells.crashed(now_ms)
        for _, _, binding in self.bindings():
            binding.crashed()

    # Depth.

    def depth(self, name: str, key: str) -> tuple[set[int], set[int]]:
        """Returns the messages that count in a queue's depth, and those that may."""
        binding = self.queues[name][key]
        must = {o for o in binding.owed if not (self.is_gone(key, o) or binding.may_have_died(o))}
        may = binding.owed | binding.acked | binding.told | binding.doubtful
        return must, {offset for offset in may if offset >= self.dropped_below[key]}

    def left(self, name: str, key: str) -> set[int]:
        """Returns what a queue has to get, or to be told of, and did not. Of a message that may have died nothing tells
        if it has no place to go, or is gone."""
        binding = self.queues[name][key]
        silent = {
            offset
            for offset in binding.owed
            if binding.may_have_died(offset) and (not binding.options.dead_letter or self.is_gone(key, offset))
        }
        return binding.owed - binding.out.keys() - silent
