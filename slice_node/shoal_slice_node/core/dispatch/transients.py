"""Keeps the times of transient queues, and finds those that nothing has consumed for as long as they allow.

The time of a queue begins when it is declared or bound, and when the last session leaves it; with a new leader all
times begin anew. They are counted by the node's own clock, which only grows, so nothing ends early.

Up to TRANSIENTS_LEFT_MAX queues have a time of their own. Queues beyond them share times: the time when a queue was
left last is noted in one of many slots, by the queue's number. Of the queues of one slot each counts as left when the
last of them was: it ends later, never earlier. Walks over table `transient`, in bounded turns, find these queues, and
those that were there before this leader; they are repeated, with rests, as long as some have no time of their own. So
memory has a bound, and however many queues are left, each ends.

A queue that is about to be dropped has its end decided: a session that attaches it now waits for the next queue
of its name.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from itertools import islice

from shoal_slice_node.core.apply.records import Expired
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    EXPIRED_PER_RECORD_MAX,
    TRANSIENT_SLOTS,
    TRANSIENT_WALK_REST_MS,
    TRANSIENTS_LEFT_MAX,
    TRANSIENTS_PER_TURN,
    TRANSIENTS_TIMED_PER_TURN,
)
from shoal_slice_node.core.rows.queue_row import name_of, options_of


class Transients:
    """Keeps the times of transient queues, on the leader. `ending`: those whose record is under way. `is_consumed` says
    of a queue id whether a session consumes it."""

    def __init__(self, state: State, is_consumed: Callable[[bytes], bool]) -> None:
        self.ending: set[bytes] = set()
        self._state = state
        self._is_consumed = is_consumed
        self._stays: Callable[[bytes], None] = lambda name: None
        self._refused = False
        self._fresh: dict[bytes, int] = {}
        """Queues that were left and have no time yet, with their seconds: a turn tells the time."""
        self._ends: dict[bytes, int] = {}
        """When each queue ends that has a time of its own; 0 if it was consumed since."""
        self._line: list[tuple[int, bytes]] = []
        """A heap with one entry for each queue in `_ends`: when it ends, or an earlier time. Then its end is looked up,
        and it stands in line again."""
        self._left = _LeftTimes()
        self._walking = False
        self._position = b""
        self._again = False
        """Some queue got no time of its own in this walk, or since it began: there must be another walk."""
        self._next_walk_ms = 0

    def __len__(self) -> int:
        return len(self._ends)

    def tell(self, stays: Callable[[bytes], None]) -> None:
        """Has `stays` called with the name of each queue that was about to be dropped and stays."""
        self._stays = stays

    def begin(self, now_ms: int) -> None:
        """Begins all times: every transient queue counts as left now. `now_ms`, here and elsewhere: the time of a clock
        that only grows."""
        self._left.begin(now_ms)
        self._walking = True

    def left(self, queue_id: bytes, expires_after_s: int) -> None:
        """Notes that a transient queue was declared or bound, or that the last session left it."""
        self.ending.discard(queue_id)  # Its record will leave it.
        self._fresh[queue_id] = expires_after_s

    def taken(self, queue_id: bytes) -> None:
        """Notes that a session consumes a transient queue."""
        self._fresh.pop(queue_id, None)
        if queue_id in self._ends:
            self._ends[queue_id] = 0

    def due(self, now_ms: int) -> list[Expired]:
        """Returns some queues to drop, in a bounded turn. No record may be under way: `ending` has those of
        the last one."""
        self._end_record()
        self._time_fresh(now_ms)
        due = self._walk(now_ms) if self._walking and now_ms >= self._next_walk_ms else []
        self._take_due(now_ms, due)
        self.ending.update(queue_id for queue_id, _ in due)
        return due

    def refused(self) -> None:
        """Notes that the record was not written: its queues stay, and the next turn decides anew."""
        self._refused = True

    def _end_record(self) -> None:
        ending, self.ending = self.ending, set()
        if not self._refused:
            return
        self._refused = False
        for queue_id in ending:
            row = self._state.tables.queue.get(queue_id)
            if row is not None:
                self._fresh.setdefault(queue_id, 0)
                self._stays(name_of(row))

    def _time_fresh(self, now_ms: int) -> None:
        """Gives some queues that were left their times."""
        for queue_id in list(islice(self._fresh, TRANSIENTS_TIMED_PER_TURN)):
            end_ms = now_ms + self._fresh.pop(queue_id) * 1000
            if self._is_consumed(queue_id):
                continue
            if queue_id in self._ends:
                self._ends[queue_id] = end_ms
            elif len(self._ends) < TRANSIENTS_LEFT_MAX:
                self._time(queue_id, end_ms)
            else:
                self._left.note(queue_id, now_ms)
                self._walking = self._again = True

    def _time(self, queue_id: bytes, end_ms: int) -> None:
        self._ends[queue_id] = end_ms
        heappush(self._line, (end_ms, queue_id))

    def _walk(self, now_ms: int) -> list[Expired]:
        """Looks at some queues without a time of their own. Returns those that end now; gives others a time, while
        there is room for it."""
        tables, due = self._state.tables, []
        found = [queue_id for queue_id, _ in islice(tables.transient.scan(start=self._position), TRANSIENTS_PER_TURN)]
        for queue_id in found:
            self._position = queue_id + b"\x00"
            row = tables.queue.get(queue_id)
            if row is None or queue_id in self._ends or queue_id in self._fresh or self._is_consumed(queue_id):
                continue
            end_ms = self._left.time_ms(queue_id) + options_of(row).expires_after_s * 1000
            if end_ms <= now_ms:
                due.append(Expired(queue_id, name_of(row)))
            elif len(self._ends) < TRANSIENTS_LEFT_MAX // 2:
                self._time(queue_id, end_ms)
            else:
                self._again = True
        if len(found) < TRANSIENTS_PER_TURN:
            self._walking, self._again = self._again, False
            self._position = b""
            self._next_walk_ms = now_ms + TRANSIENT_WALK_REST_MS
        return due

    def _take_due(self, now_ms: int, due: list[Expired]) -> None:
        """Adds to `due` queues whose own time is over."""
        line, ends = self._line, self._ends
        for _ in range(TRANSIENTS_TIMED_PER_TURN):
            if not line or line[0][0] > now_ms or len(due) >= EXPIRED_PER_RECORD_MAX:
                return
            queue_id = line[0][1]
            end_ms = ends[queue_id]
            if end_ms > now_ms:
                heapreplace(line, (end_ms, queue_id))
                continue
            heappop(line)
            del ends[queue_id]
            if not end_ms or queue_id in self._fresh or self._is_consumed(queue_id):
                continue
            row = self._state.tables.queue.get(queue_id)
            if row is not None:
                due.append(Expired(queue_id, name_of(row)))


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
            self._slots = array("Q", bytes(8 * TRANSIENT_SLOTS))
        self._slots[int.from_bytes(queue_id, "big") % TRANSIENT_SLOTS] = now_ms

    def time_ms(self, queue_id: bytes) -> int:
        """Returns the time when the queue was left, or a later one."""
        if self._slots is None:
            return self._begin_ms
        return max(self._begin_ms, self._slots[int.from_bytes(queue_id, "big") % TRANSIENT_SLOTS])
