"""Which rows of `reclaim` the next turns should look at. Of the leader; what it forgets, a walk over the table finds.

The table itself is walked only after a start, or when more came than fits here: rows that were dealt with stay in the
checkpoint until the next one, and a walk would pass them all again and again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from shoal_slice_node.core.rows.small_rows import RECLAIM_KEY, RECLAIM_QUEUE
from shoal_slice_node.core.tables import Rows
from shoal_slice_node.limits import RECLAIM_NOTED_MAX


class ReclaimList:
    """`_walk`: keys of the table from here on are not known to be dealt with; None: all are noted or done."""

    def __init__(self, table: Rows) -> None:
        self._table = table
        self._noted: deque[bytes] = deque()
        self._walk: bytes | None = RECLAIM_KEY

    def note(self, row_keys: Iterable[bytes]) -> None:
        """Rows that were put just now."""
        self._noted.extend(row_keys)
        if len(self._noted) > RECLAIM_NOTED_MAX:
            self._noted.clear()
            self._walk = RECLAIM_KEY

    def take(self, rows_max: int) -> list[bytes]:
        """Up to `rows_max` keys of rows; some may have been dealt with."""
        taken = [self._noted.popleft() for _ in range(min(rows_max, len(self._noted)))]
        if self._walk is not None and len(taken) < rows_max:
            taken += self._walked(rows_max - len(taken))
        return taken

    def _walked(self, rows_max: int) -> list[bytes]:
        assert self._walk is not None
        found = [key for key, _ in islice(self._table.scan(start=self._walk), rows_max)]
        self._walk = found[-1] + b"\x00" if len(found) == rows_max else None
        return [key for key in found if key[:1] in (RECLAIM_KEY, RECLAIM_QUEUE)]
