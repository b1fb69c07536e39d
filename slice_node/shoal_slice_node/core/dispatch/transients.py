"""Keeps the times of transient queues, and finds those that nothing has consumed for as long as they allow.

The time of a queue begins when it is declared, and when the last session leaves it; with a new leader all times begin
anew. They are counted by the node's own clock, which only grows, so nothing ends early. This memory has a bound: beyond
it the leader forgets the times and takes all queues as left just now. Queues without a time of their own are found by
walks over table `transient`, in bounded turns.

A queue that is about to be dropped has its end decided: who attaches it now waits for the next queue of its name.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice

from shoal_slice_node.core.apply.records import Expired
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import EXPIRED_PER_RECORD_MAX, TRANSIENTS_LEFT_MAX, TRANSIENTS_PER_TURN
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
        """Queues that were left since the last turn, with their seconds: a turn tells the time."""
        self._ends: dict[bytes, int] = {}
        """When each queue ends that has a time of its own."""
        self._line: list[tuple[int, bytes]] = []
        """A heap of ends; one that `_ends` does not have is over."""
        self._left_ms = 0
        """The queues without a time of their own count as left then."""
        self._walking = False
        self._position = b""

    def __len__(self) -> int:
        return len(self._ends)

    def tell(self, stays: Callable[[bytes], None]) -> None:
        """Has `stays` called with the name of each queue that was about to be dropped and stays."""
        self._stays = stays

    def begin(self, now_ms: int) -> None:
        """Begins all times anew: every transient queue counts as left now. `now_ms`, here and elsewhere: the time of a
        clock that only grows."""
        self._ends.clear()
        self._line.clear()
        self._left_ms = now_ms
        self._walking = True
        self._position = b""

    def left(self, queue_id: bytes, expires_after_s: int) -> None:
        """Notes that a transient queue was declared, or that the last session left it."""
        self.ending.discard(queue_id)  # Declared again: its record will leave it.
        self._fresh[queue_id] = expires_after_s

    def taken(self, queue_id: bytes) -> None:
        """Notes that a session consumes a transient queue."""
        self._fresh.pop(queue_id, None)
        self._ends.pop(queue_id, None)

    def due(self, now_ms: int) -> list[Expired]:
        """Returns some queues to drop, in a bounded turn. No record may be under way: `ending` has those of
        the last one."""
        self._end_record()
        self._time_fresh(now_ms)
        if self._walking:
            self._walk()
        due = self._take_due(now_ms)
        self.ending.update(queue_id for queue_id, _ in due)
        return due

    def refused(self) -> None:
        """Is told that the record was not written: its queues stay, and the next turn decides anew."""
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
        fresh, self._fresh = self._fresh, {}
        if len(self._ends) + len(fresh) > TRANSIENTS_LEFT_MAX:
            self.begin(now_ms)
            return
        for queue_id, expires_after_s in fresh.items():
            if not self._is_consumed(queue_id):
                self._time(queue_id, now_ms + expires_after_s * 1000)
        if len(self._line) > 2 * len(self._ends) + TRANSIENTS_PER_TURN:
            self._line = sorted((end_ms, queue_id) for queue_id, end_ms in self._ends.items())

    def _time(self, queue_id: bytes, end_ms: int) -> None:
        self._ends[queue_id] = end_ms
        heappush(self._line, (end_ms, queue_id))

    def _walk(self) -> None:
        """Gives some queues that have none a time of their own, while there is room for them."""
        tables, room = self._state.tables, TRANSIENTS_LEFT_MAX // 2 - len(self._ends)
        wanted = max(0, min(room, TRANSIENTS_PER_TURN))
        found = [queue_id for queue_id, _ in islice(tables.transient.scan(start=self._position), wanted)]
        for queue_id in found:
            self._position = queue_id + b"\x00"
            row = tables.queue.get(queue_id)
            if row is not None and queue_id not in self._ends and not self._is_consumed(queue_id):
                self._time(queue_id, self._left_ms + options_of(row).expires_after_s * 1000)
        self._walking = len(found) == wanted

    def _take_due(self, now_ms: int) -> list[Expired]:
        due: list[Expired] = []
        line, ends = self._line, self._ends
        while line and line[0][0] <= now_ms and len(due) < EXPIRED_PER_RECORD_MAX:
            end_ms, queue_id = heappop(line)
            if ends.get(queue_id) != end_ms:
                continue
            del ends[queue_id]
            row = self._state.tables.queue.get(queue_id)
            if row is not None and not self._is_consumed(queue_id):
                due.append(Expired(queue_id, name_of(row)))
        return due
