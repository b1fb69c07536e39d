"""Keeps what happened to members and is not taken in yet: one record, or one session, may change a thousand queues that
are members of a thousand watched keys each, and a thousand keys that 128 prefixes count.

What is little is taken in at once. The rest waits for turns: what happened to members of watched keys in its order;
presence and counts once for each queue or key, since what is taken in is how it is then. Of each there is a bound, as
changes may come faster than they are taken in. Above it what waits is forgotten: the members of all watched keys are
looked up anew. Of counts, only the prefix with the most that wait gets a snapshot, and so do the shorter watched
prefixes that it begins with.

A key that begins to be watched looks up its members as they are now, and what waits is taken in after that. This does
no harm: what is known already changes nothing, and the last thing that happened to a queue is taken in last.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Container, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

from shoal_slice_node.core.apply.effects import Dropped, Joined, Left
from shoal_slice_node.core.watching.limits import (
    CHANGES_PER_STEP_MAX,
    COUNTS_WAITING_MAX,
    MEMBER_CHANGES_WAITING_MAX,
    PRESENCE_AT_ONCE_MAX,
)
from shoal_slice_node.core.watching.watched_key import Known, WatchedKey

NOT_ALL: Final = -1
MemberEvent: TypeAlias = "Joined | Left | Dropped"


class Followed(Protocol):
    """Takes in what the line hands on: it has the watched keys and prefixes."""

    def is_online(self, queue_id: bytes) -> bool:
        """Returns whether a session has the queue attached."""

    def note_due(self, watched: WatchedKey) -> None:
        """Notes that a watched key has something to tell."""

    def take_in(self, event: Joined | Left) -> int:
        """Takes in that a queue joined or left a watched key. Returns how many watched keys heard of it."""

    def count(self, key: bytes, bound: bool) -> int:
        """Takes in that other queues of a key are consumed, or, with `bound`, bound to it. Returns how many prefixes
        heard of it."""

    def longest_prefix(self, key: bytes) -> bytes | None:
        """Returns the longest watched prefix of a key; None: there is none."""

    def count_anew(self, prefix: bytes, bound: bool) -> None:
        """Takes in that this holds for more keys of a watched prefix than may wait: it gets a snapshot, and so do the
        shorter watched prefixes that it begins with."""

    def look_up_anew(self) -> None:
        """Takes in that more happened to members of watched keys than may wait."""


class MemberLine:
    """Keeps the line. As a container it has the ids of queues that are members of watched keys, or will be when what
    waits is taken in: the drops of others are not told."""

    def __init__(self, known: Known, keys: Container[bytes], prefixes: Container[bytes], followed: Followed) -> None:
        """`keys`, `prefixes`: those that are watched, by name."""
        self._known = known
        self._keys = keys
        self._prefixes = prefixes
        self._followed = followed
        self._events: deque[MemberEvent] = deque()
        """What happened to members of watched keys. About MEMBER_CHANGES_WAITING_MAX at most."""
        self._joining: Counter[bytes] = Counter()
        """Ids of the queues of the Joined events."""
        self._leaving: Iterator[WatchedKey] = iter(())
        """The watched keys that have not heard of the drop which is the first event."""
        self._presence: OrderedDict[bytes, Iterator[WatchedKey] | None] = OrderedDict()
        """Queues that became online or offline -> the watched keys that have not heard of it; None: none has."""
        self._counts: OrderedDict[bytes, OrderedDict[bytes, bool]] = OrderedDict()
        """Keys whose counts changed, as `Followed.count` takes them in, by their longest watched prefix: a storm below
        one prefix holds up no other one."""
        self._counted = 0
        """How many keys these are. At most COUNTS_WAITING_MAX."""

    def __bool__(self) -> bool:
        return bool(self._events or self._presence or self._counts)

    def __contains__(self, queue_id: object) -> bool:
        return queue_id in self._known or queue_id in self._joining

    def happened(self, events: Iterable[MemberEvent]) -> None:
        """Takes in events, at once as far as this is little."""
        at_once = not (self._events or self._counts)
        for event in events:
            if isinstance(event, Dropped):
                if event.queue_id in self:
                    self._events.append(event)
                continue
            if event.key in self._keys:
                self._events.append(event)
                if isinstance(event, Joined):
                    self._joining[event.queue_id] += 1
            if self._prefixes:
                self._note_count(event.key, True)
        if at_once:
            self._take_counts(self._take_events(CHANGES_PER_STEP_MAX))
        if len(self._events) > MEMBER_CHANGES_WAITING_MAX:
            self._events.clear()
            self._joining.clear()
            self._leaving = iter(())
            self._followed.look_up_anew()

    def attached(self, queue_id: bytes) -> None:
        """Takes in that a queue is online or offline now."""
        keys = self._known.get(queue_id, ())
        if len(keys) <= PRESENCE_AT_ONCE_MAX and queue_id not in self._presence:
            self._tell(queue_id, iter(tuple(keys)), PRESENCE_AT_ONCE_MAX + 1)
        else:
            self._presence[queue_id] = None

    def in_memory_changed(self, key: bytes) -> None:
        """Takes in, later, that other queues of a key are consumed than before."""
        self._note_count(key, False)

    def _note_count(self, key: bytes, bound: bool) -> None:
        prefix = self._followed.longest_prefix(key)
        if prefix is None:
            return
        keys = self._counts.get(prefix)
        if keys is None:
            keys = self._counts[prefix] = OrderedDict()
        if key in keys:
            keys[key] = keys[key] or bound
            return
        keys[key] = bound
        self._counted += 1
        if self._counted > COUNTS_WAITING_MAX:
            prefix = max(self._counts, key=lambda one: len(self._counts[one]))
            keys = self._counts.pop(prefix)
            self._counted -= len(keys)
            self._followed.count_anew(prefix, any(keys.values()))

    def step(self) -> None:
        """Takes in some of what waits."""
        left = self._take_events(CHANGES_PER_STEP_MAX)
        while self._presence and left > 0:
            queue_id, keys = next(iter(self._presence.items()))
            if keys is None:
                keys = self._presence[queue_id] = iter(tuple(self._known.get(queue_id, ())))
            told = self._tell(queue_id, keys, left)
            if told == NOT_ALL:
                return
            del self._presence[queue_id]
            left = told - 1
        self._take_counts(left)

    def _take_counts(self, left: int) -> None:
        """Takes in changes of counts, those of each prefix in turn, until they cost `left`."""
        while self._counts and left > 0:
            prefix, keys = self._counts.popitem(last=False)
            key, bound = keys.popitem(last=False)
            self._counted -= 1
            if keys:
                self._counts[prefix] = keys
            left -= 1 + self._followed.count(key, bound)

    def _tell(self, queue_id: bytes, keys: Iterator[WatchedKey], left: int) -> int:
        """Tells watched keys whether a queue is online, up to `left` of them. Returns what is left of the cost,
        or NOT_ALL."""
        online = self._followed.is_online(queue_id)
        for watched in keys:
            if watched.attached(queue_id, online):
                self._followed.note_due(watched)
            left -= 1
            if left <= 0:
                return NOT_ALL
        return left

    def _take_events(self, left: int) -> int:
        """Takes in events, the first ones first, until they cost `left`. Returns what is left of it, at least 0."""
        while self._events and left > 0:
            event = self._events[0]
            if isinstance(event, Dropped):
                left = self._drop(event.queue_id, left)
                if left <= 0:
                    return 0
                left -= 1
            else:
                left -= max(1, self._followed.take_in(event))
                if isinstance(event, Joined):
                    self._joining[event.queue_id] -= 1
                    if not self._joining[event.queue_id]:
                        del self._joining[event.queue_id]
            self._events.popleft()
        return max(0, left)

    def _drop(self, queue_id: bytes, left: int) -> int:
        """Lets a queue leave the watched keys that know it, up to `left` of them. Returns what is left of the cost."""
        while left > 0:
            watched = next(self._leaving, None)
            if watched is None:
                if queue_id not in self._known:
                    return left
                self._leaving = iter(tuple(self._known[queue_id]))
            elif watched.left(queue_id):
                self._followed.note_due(watched)
            left -= 1
        return 0
