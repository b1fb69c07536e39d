"""Finds what is due at an absolute time: looks at the head of table `due`, in bounded turns.

The machine's clock decides, which may jump. When it goes back, what is not done yet waits until the clock has come to
its time again: nothing happens before the time that the clock shows.

Rows that were done stay in the checkpoint until the next one, and a scan passes them all. So a scan goes on behind the
rows that were taken last; rows that come in below are noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice

from shoal_slice_node.core.apply.records import Due
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import DUE_BYTES_PER_RECORD, DUE_EARLY_NOTED_MAX, DUE_PER_RECORD_MAX
from shoal_slice_node.core.rows.due_row import decode_delayed, due_time, expiring_key
from shoal_slice_node.core.rows.key_row import NAME

_NEVER = 1 << 64


class DueList:
    """Finds the rows. `wall_ms`: the machine's time, as it was told last; 0: not told yet."""

    def __init__(self, state: State) -> None:
        self.wall_ms = 0
        self._state = state
        self._position = b""
        """Rows below were taken, or are noted in `_early`."""
        self._head_ms = 0
        """No row from `_position` on is due earlier."""
        self._early: list[bytes] = []
        """A heap of rows below `_position`."""

    def note(self, row_keys: Iterable[bytes]) -> None:
        """Notes rows that came into the table."""
        for row_key in row_keys:
            if row_key < self._position:
                heappush(self._early, row_key)
            else:
                self._head_ms = min(self._head_ms, due_time(row_key))
        if len(self._early) > DUE_EARLY_NOTED_MAX:
            self._early.clear()
            self._position = b""
            self._head_ms = 0

    def take(self) -> tuple[list[Due], int]:
        """Returns rows that are due, for one record, and the bytes of their chunks. They are not returned again unless
        they are noted."""
        found: list[Due] = []
        left = DUE_BYTES_PER_RECORD
        table, wall_ms = self._state.tables.due, self.wall_ms
        while self._early and due_time(self._early[0]) <= wall_ms and left > 0 and len(found) < DUE_PER_RECORD_MAX:
            row_key = heappop(self._early)
            row = table.get(row_key)
            if row is not None:
                left -= self._add(found, row_key, row)
        if wall_ms < self._head_ms:
            return found, DUE_BYTES_PER_RECORD - left
        for row_key, row in islice(table.scan(start=self._position), DUE_PER_RECORD_MAX - len(found)):
            if due_time(row_key) > wall_ms or left <= 0:
                self._head_ms = due_time(row_key)
                return found, DUE_BYTES_PER_RECORD - left
            left -= self._add(found, row_key, row)
            self._position = row_key + b"\x00"
        if len(found) < DUE_PER_RECORD_MAX:
            self._head_ms = _NEVER
        return found, DUE_BYTES_PER_RECORD - left

    def _add(self, found: list[Due], row_key: bytes, row: bytes) -> int:
        """Adds a row to what is due. Returns the bytes of the chunk that it publishes."""
        key_id = expiring_key(row_key)
        if key_id is not None:
            found.append(Due(row_key, (self._state.tables.key_name.get(key_id) or b"")[NAME]))
            return 0
        delayed = decode_delayed(row)
        found.append(Due(row_key, delayed.full_name[NAME]))
        return delayed.chunk_bytes
