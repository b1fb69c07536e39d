"""Keeps what happened to members and is not taken in yet: one record, or one session, may change a thousand queues that
are members of a thousand watched keys each.

What is little is taken in at once. The rest waits for turns: joins and leaves in the order in which they happened;
presence and counts once for each queue or key, since what is taken in is how it is then.

A key that begins to be watched looks up its members as they are now, and what waits is taken in after that. This does
no harm: what is known already changes nothing, and the last thing that happened to a queue is taken in last.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from shoal_slice_node.core.apply.effects import Dropped, Joined, Left
from shoal_slice_node.core.watching.limits import CHANGES_PER_STEP_MAX, CONSUMED_WAITING_MAX, PRESENCE_AT_ONCE_MAX
from shoal_slice_node.core.watching.watched_key import Known, WatchedKey

NOT_ALL: Final = -1
MemberEvent: TypeAlias = "Joined | Left | Dropped"


class MemberLine:
    """Keeps the line. As a container it has the ids of queues that are members of watched keys, or will be when what
    waits is taken in: the drops of others are not told."""

    def __init__(
        self,
        known: Known,
        is_online: Callable[[bytes], bool],
        changed: Callable[[WatchedKey], None],
        take_in: Callable[[Joined | Left], int],
        count: Callable[[bytes], int],
        count_all: Callable[[], None],
    ) -> None:
        """`changed` hears of each watched key with something to tell. `take_in` takes in that a queue joined or left a
        key, and `count` that other queues of a key are consumed; they return what that cost, in watched keys or
        prefixes. `count_all` takes in that this holds for more keys than may wait."""
        self._known = known
        self._is_online = is_online
        self._changed = changed
        self._take_in = take_in
        self._count = count
        self._count_all = count_all
        self._events: deque[MemberEvent] = deque()
        self._joining: Counter[bytes] = Counter()
        """Ids of the queues of the Joined events."""
        self._leaving: Iterator[WatchedKey] = iter(())
        """The watched keys that have not heard of the drop which is the first event."""
        self._presence: OrderedDict[bytes, Iterator[WatchedKey] | None] = OrderedDict()
        """Queues that became online or offline -> the watched keys that have not heard of it; None: none has."""
        self._in_memory_changed: OrderedDict[bytes, None] = OrderedDict()
        """Keys of which other queues are consumed than before. At most CONSUMED_WAITING_MAX."""

    def __bool__(self) -> bool:
        return bool(self._events or self._presence or self._in_memory_changed)

    def __contains__(self, queue_id: object) -> bool:
        return queue_id in self._known or queue_id in self._joining

    def happened(self, events: Iterable[MemberEvent]) -> None:
        """Takes in events, at once as far as this is little."""
        at_once = not self._events
        for event in events:
            self._events.append(event)
            if isinstance(event, Joined):
                self._joining[event.queue_id] += 1
        if at_once:
            self._take_events(CHANGES_PER_STEP_MAX)

    def attached(self, queue_id: bytes) -> None:
        """Takes in that a queue is online or offline now."""
        keys = self._known.get(queue_id, ())
        if len(keys) <= PRESENCE_AT_ONCE_MAX and queue_id not in self._presence:
            self._tell(queue_id, iter(tuple(keys)), PRESENCE_AT_ONCE_MAX + 1)
        else:
            self._presence[queue_id] = None

    def in_memory_changed(self, key: bytes) -> None:
        """Takes in, later, that other queues of a key are consumed than before."""
        self._in_memory_changed[key] = None
        if len(self._in_memory_changed) > CONSUMED_WAITING_MAX:
            self._in_memory_changed.clear()
            self._count_all()

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
        while self._in_memory_changed and left > 0:
            key, _ = self._in_memory_changed.popitem(last=False)
            left -= 1 + self._count(key)

    def _tell(self, queue_id: bytes, keys: Iterator[WatchedKey], left: int) -> int:
        """Tells watched keys whether a queue is online, up to `left` of them. Returns what is left of the cost,
        or NOT_ALL."""
        online = self._is_online(queue_id)
        for watched in keys:
            if watched.attached(queue_id, online):
                self._changed(watched)
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
                left -= max(1, self._take_in(event))
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
                self._changed(watched)
            left -= 1
        return 0
