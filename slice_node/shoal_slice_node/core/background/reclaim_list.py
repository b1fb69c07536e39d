"""Lists the rows of `reclaim` that the next turns should look at. Only the leader has it; a walk over the table finds
what it forgets.

The table is walked only after a start, or when more rows came than fit here. Finished rows stay in the checkpoint until
the next checkpoint, and a walk would pass them all again and again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shoal_slice_node.core.limits import RECLAIM_KEY_COST, RECLAIM_NOTED_MAX, RECLAIM_QUEUE_COST
from shoal_slice_node.core.rows.small_rows import RECLAIM_KEY, RECLAIM_QUEUE
from shoal_slice_node.core.tables.tables import Rows


class ReclaimList:
    """Keeps the list. `_walk`: row keys from here on may be neither noted nor finished; None: there are none."""

    def __init__(self, table: Rows) -> None:
        self._table = table
        self._noted: deque[bytes] = deque()
        self._walk: bytes | None = RECLAIM_KEY

    def note(self, row_keys: Iterable[bytes]) -> None:
        """Notes rows that were put just now."""
        self._noted.extend(row_keys)
        if len(self._noted) > RECLAIM_NOTED_MAX:
            self._noted.clear()
            self._walk = RECLAIM_KEY

    def take(self, cost_max: int) -> list[bytes]:
        """Returns keys of rows to reclaim, for about `cost_max` in all; some rows may be finished already."""
        taken: list[bytes] = []
        while self._noted and cost_max > 0:
            row_key = self._noted.popleft()
            cost_max -= _cost(row_key)
            taken.append(row_key)
        if self._walk is not None and cost_max > 0:
            taken += self._walked(cost_max)
        return taken

    def _walked(self, cost_max: int) -> list[bytes]:
        assert self._walk is not None
        found: list[bytes] = []
        for row_key, _ in self._table.scan(start=self._walk):
            self._walk = row_key + b"\x00"
            cost_max -= _cost(row_key)
            if row_key[:1] in (RECLAIM_KEY, RECLAIM_QUEUE):
                found.append(row_key)
            if cost_max <= 0:
                return found
        self._walk = None
        return found


def _cost(row_key: bytes) -> int:
    """Returns what reclaiming this row takes, in bindings."""
    return RECLAIM_QUEUE_COST if row_key[:1] == RECLAIM_QUEUE else RECLAIM_KEY_COST
