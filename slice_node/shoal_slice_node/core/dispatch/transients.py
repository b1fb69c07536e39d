"""Finds the transient queues that nothing has consumed for as long as they allow; LeftClock keeps their times.

The time of a queue begins when it is declared or bound, and when the last session leaves it. A queue that is about to
be dropped has its end decided: a session that attaches it now waits for the next queue of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shoal_slice_node.core.apply.records import Expired
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from shoal_slice_node.core.rows.farewell_row import queue_key
from shoal_slice_node.core.rows.queue_row import name_of, options_of


class Transients:
    """Finds transient queues to drop, on the leader. `ending`: those whose record is under way. `is_consumed` says of a
    queue id whether a session consumes it."""

    def __init__(self, state: State, is_consumed: Callable[[bytes], bool]) -> None:
        self.ending: set[bytes] = set()
        self._state = state
        self._begin_stays: Callable[[], None] = lambda: None
        self._stays: Callable[[bytes], None] = lambda name: None
        self._refused = False
        self._clock = LeftClock(_TransientQueues(state, is_consumed))

    def __len__(self) -> int:
        return len(self._clock)

    def tell(self, begin: Callable[[], None], stays: Callable[[bytes], None]) -> None:
        """Has `stays` called with the name of each queue that was about to be dropped and stays; and `begin` before the
        first one of a record."""
        self._begin_stays, self._stays = begin, stays

    def begin(self, now_ms: int) -> None:
        """Begins all times: every transient queue counts as left now. `now_ms`, here and elsewhere: the time of a clock
        that only grows."""
        self._clock.begin(now_ms)

    def left(self, queue_id: bytes, expires_after_s: int) -> None:
        """Notes that a transient queue was declared or bound, or that the last session left it."""
        self.ending.discard(queue_id)  # Its record will leave it.
        self._clock.left(queue_id, expires_after_s)

    def taken(self, queue_id: bytes) -> None:
        """Notes that a session consumes a transient queue."""
        self._clock.taken(queue_id)

    def due(self, now_ms: int) -> list[Expired]:
        """Returns some queues to drop, in a bounded turn. No record may be under way: `ending` has those of
        the last one."""
        self._end_record()
        due: list[Expired] = []
        for queue_id in self._clock.due(now_ms):
            row = self._state.tables.queue.get(queue_id)
            if row is not None:
                due.append(Expired(queue_id, name_of(row)))
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
        self._begin_stays()
        for queue_id in ending:
            row = self._state.tables.queue.get(queue_id)
            if row is not None:
                self._clock.again(queue_id)
                self._stays(name_of(row))


class _TransientQueues:
    """See LeftQueues."""

    def __init__(self, state: State, is_consumed: Callable[[bytes], bool]) -> None:
        self.is_consumed = is_consumed
        self._tables = state.tables

    def ids(self, start: bytes) -> Iterator[bytes]:
        """See LeftQueues."""
        for queue_id, _ in self._tables.transient.scan(start=start):
            yield queue_id

    def seconds(self, queue_id: bytes) -> int | None:
        """See LeftQueues."""
        row = self._tables.queue.get(queue_id)
        return None if row is None else options_of(row).expires_after_s

    def record_bytes(self, queue_id: bytes) -> int:
        """See LeftQueues: its farewell is said when it ends."""
        return len(self._tables.farewell.get(queue_key(queue_id)) or b"")
