"""Finds queues that nothing has consumed for so long as each of them allows: never early, and in bounded memory.

The time of a queue begins when the last session leaves it, or when the owner says so; with a new leader all times begin
anew. They are counted by the node's own clock, which only grows, so nothing ends early.

Up to LEFT_TIMES_MAX queues have a time of their own. Queues beyond them share times: the time when a queue was
left last is noted in one of many slots, by the queue's number. Of the queues of one slot each counts as left when the
last of them was: it ends later, never earlier. Walks over a table, in bounded turns, find these queues, and those that
were there before this leader; they are repeated, with rests, as long as some have no time of their own. So memory has a
bound, and however many queues are left, each ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Protocol

from shoal_slice_node.core.limits import (
    FAREWELLS_BYTES_PER_RECORD,
    LEFT_PER_RECORD_MAX,
    LEFT_SLOTS,
    LEFT_STALE_MAX,
    LEFT_TIMED_PER_TURN,
    LEFT_TIMES_MAX,
    LEFT_WALK_REST_MS,
    LEFT_WALKED_PER_TURN,
)


class LeftQueues(Protocol):
    """Says what the clock asks about queues, by their ids."""

    def ids(self, start: bytes) -> Iterator[bytes]:
        """Yields the queues of the table, ascending, from `start` on."""

    def seconds(self, queue_id: bytes) -> int | None:
        """Returns how long nothing must have consumed the queue; None: it is not in the table any more."""

    def record_bytes(self, queue_id: bytes) -> int:
        """Returns the bytes of what a record does for the queue, besides a constant part."""

    def is_consumed(self, queue_id: bytes) -> bool:
        """Returns whether a session consumes the queue."""


class LeftClock:
    """Keeps the times of the queues of one table, on the leader."""

    def __init__(self, queues: LeftQueues) -> None:
        self._queues = queues
        self._fresh: dict[bytes, int] = {}
        """Queues that were left and have no time yet, with their seconds: a turn tells the time."""
        self._ends: dict[bytes, int] = {}
        """When each queue ends that has a time of its own; 0 if it was consumed since."""
        self._line: list[tuple[int, bytes]] = []
        """A heap with an entry for each queue in `_ends`: when it ends, or an earlier time. Then its end is looked up,
        and it stands in line again. Entries that `anew` left behind do nothing."""
        self._left = _LeftTimes()
        self._left_bytes = 0
        """What the next record may still do."""
        self._walking = False
        self._position = b""
        self._again = False
        """Some queue got no time of its own in this walk, or since it began: there must be another walk."""
        self._next_walk_ms = 0

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, now_ms: int) -> None:
        """Begins all times: every queue counts as left now. `now_ms`, here and elsewhere: the time of a clock that only
        grows."""
        self._left.begin(now_ms)
        self._walking = True

    def left(self, queue_id: bytes, seconds: int) -> None:
        """Notes that the last session left a queue, or that its time begins anew."""
        self._fresh[queue_id] = seconds

    def anew(self, queue_id: bytes, seconds: int) -> None:
        """Begins a queue's time anew, with other seconds than before: it may end earlier than it would have."""
        self._ends.pop(queue_id, None)
        self._fresh[queue_id] = seconds

    def again(self, queue_id: bytes) -> None:
        """Has a queue found again by the next turn: what was to be done for it was not."""
        self._fresh.setdefault(queue_id, 0)

    def taken(self, queue_id: bytes) -> None:
        """Notes that a session consumes a queue."""
        self._fresh.pop(queue_id, None)
        if queue_id in self._ends:
            self._ends[queue_id] = 0

    def began_anew(self, queue_id: bytes) -> bool:
        """Returns whether a queue's time began anew since the last turn: what that turn found is not so any more."""
        return queue_id in self._fresh

    def end_ms(self, queue_id: bytes, seconds: int, now_ms: int) -> int:
        """Returns when a queue ends that nothing consumes, at the earliest: its own time, or that of all with which it
        shares one. A queue that was left since the last turn begins its time with the next one."""
        if queue_id in self._fresh:
            return now_ms + self._fresh[queue_id] * 1000
        return max(now_ms, self._ends.get(queue_id, 0) or self._left.time_ms(queue_id) + seconds * 1000)

    def due(self, now_ms: int) -> list[bytes]:
        """Returns some queues whose time is over, for one record, in a bounded turn."""
        self._left_bytes = FAREWELLS_BYTES_PER_RECORD
        self._time_fresh(now_ms)
        due = self._walk(now_ms) if self._walking and now_ms >= self._next_walk_ms else []
        self._take_due(now_ms, due)
        return due

    def _time_fresh(self, now_ms: int) -> None:
        """Gives some queues that were left their times."""
        for queue_id in list(islice(self._fresh, LEFT_TIMED_PER_TURN)):
            end_ms = now_ms + self._fresh.pop(queue_id) * 1000
            if self._queues.is_consumed(queue_id):
                continue
            if queue_id in self._ends:
                self._ends[queue_id] = end_ms
            elif len(self._ends) < LEFT_TIMES_MAX:
                self._time(queue_id, end_ms)
            else:
                self._left.note(queue_id, now_ms)
                self._walking = self._again = True

    def _time(self, queue_id: bytes, end_ms: int) -> None:
        self._ends[queue_id] = end_ms
        if len(self._line) >= 2 * len(self._ends) + LEFT_STALE_MAX:
            self._line = [(end, queue) for queue, end in self._ends.items()]
            heapify(self._line)
        else:
            heappush(self._line, (end_ms, queue_id))

    def _walk(self, now_ms: int) -> list[bytes]:
        """Looks at some queues without a time of their own. Returns those that end now; gives others a time, while
        there is room for it."""
        queues = self._queues
        due: list[bytes] = []
        looked = 0
        for queue_id in list(islice(queues.ids(self._position), LEFT_WALKED_PER_TURN)):
            if self._left_bytes <= 0:
                return due
            looked += 1
            self._position = queue_id + b"\x00"
            seconds = queues.seconds(queue_id)
            if seconds is None or queue_id in self._ends or queue_id in self._fresh or queues.is_consumed(queue_id):
                continue
            end_ms = self._left.time_ms(queue_id) + seconds * 1000
            if end_ms <= now_ms:
                self._take(queue_id, due)
            elif len(self._ends) < LEFT_TIMES_MAX // 2:
                self._time(queue_id, end_ms)
            else:
                self._again = True
        if looked < LEFT_WALKED_PER_TURN:
            self._walking, self._again = self._again, False
            self._position = b""
            self._next_walk_ms = now_ms + LEFT_WALK_REST_MS
        return due

    def _take(self, queue_id: bytes, due: list[bytes]) -> None:
        self._left_bytes -= self._queues.record_bytes(queue_id)
        due.append(queue_id)

    def _take_due(self, now_ms: int, due: list[bytes]) -> None:
        """Adds to `due` queues whose own time is over."""
        line, ends = self._line, self._ends
        for _ in range(LEFT_TIMED_PER_TURN):
            if not line or line[0][0] > now_ms or len(due) >= LEFT_PER_RECORD_MAX or self._left_bytes <= 0:
                return
            queue_id = line[0][1]
            end_ms = ends.get(queue_id)
            if end_ms is not None and end_ms > now_ms:
                heapreplace(line, (end_ms, queue_id))
                continue
            heappop(line)
            if end_ms is None:
                continue
            del ends[queue_id]
            if not end_ms or queue_id in self._fresh or self._queues.is_consumed(queue_id):
                continue
            if self._queues.seconds(queue_id) is not None:
                self._take(queue_id, due)


class _LeftTimes:
    """Tells since when queues without a time of their own may count as left: never too early."""

    def __init__(self) -> None:
        self._begin_ms = 0
        self._slots: array[int] | None = None
        """The time when a queue of each slot was left last; None as long as all queues had a time of their own."""

    def begin(self, now_ms: int) -> None:
        """Lets all queues count as left now."""
        self._begin_ms = now_ms
        self._slots = None

    def note(self, queue_id: bytes, now_ms: int) -> None:
        """Notes that the queue was left now. Queues are numbered one after the other, so few share a slot."""
        if self._slots is None:
            self._slots = array("Q", bytes(8 * LEFT_SLOTS))
        self._slots[int.from_bytes(queue_id, "big") % LEFT_SLOTS] = now_ms

    def time_ms(self, queue_id: bytes) -> int:
        """Returns the time when the queue was left, or a later one."""
        if self._slots is None:
            return self._begin_ms
        return max(self._begin_ms, self._slots[int.from_bytes(queue_id, "big") % LEFT_SLOTS])
