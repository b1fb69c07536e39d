"""Lists what the next RECLAIM records should look at, as the row keys in such a record. Only the leader has the list;
walks over the tables find what it forgets.

The tables are walked only after a start, or when more rows came than fit here. Finished rows stay in the checkpoint
until the next checkpoint, and a walk would pass them all again and again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from shoal_slice_node.core.limits import RECLAIM_KEY_COST, RECLAIM_NOTED_MAX, RECLAIM_QUEUE_COST
from shoal_slice_node.core.rows.queue_row import streams_of
from shoal_slice_node.core.rows.small_rows import RECLAIM_KEY, RECLAIM_QUEUE
from shoal_slice_node.core.tables.tables import Rows, Tables


class ReclaimList:
    """Keeps the list. `_walks`: what may be neither noted nor finished."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._noted: deque[bytes] = deque()
        self._begin_walks()

    def _begin_walks(self) -> None:
        self._walks = deque(
            (_Walk(self._tables.local_hints, b"", RECLAIM_KEY), _Walk(self._tables.reclaim, RECLAIM_QUEUE, b""))
        )

    def note(self, row_keys: Iterable[bytes]) -> None:
        """Notes rows that were put just now."""
        self._noted.extend(row_keys)
        if len(self._noted) > RECLAIM_NOTED_MAX:
            self._noted.clear()
            self._begin_walks()

    def note_keys(self, key_ids: Iterable[bytes]) -> None:
        """Notes keys that may have nothing left."""
        self.note([RECLAIM_KEY + key_id for key_id in key_ids])

    def take(self, cost_max: int) -> list[bytes]:
        """Returns keys of rows to reclaim, for about `cost_max` in all; some rows may be finished already."""
        taken: list[bytes] = []
        while self._noted and cost_max > 0:
            row_key = self._noted.popleft()
            row = self._tables.reclaim.get(row_key) if row_key[:1] == RECLAIM_QUEUE else None
            cost_max -= _cost(row_key, row)
            taken.append(row_key)
        while self._walks and cost_max > 0:
            found, cost = self._walks[0].take(cost_max)
            taken += found
            cost_max -= cost
            if self._walks[0].done:
                self._walks.popleft()
        return taken


class _Walk:
    """Walks over the rows of a table whose keys begin with `prefix`. `letter`: what a RECLAIM record puts before their
    keys."""

    def __init__(self, table: Rows, prefix: bytes, letter: bytes) -> None:
        self._table = table
        self._prefix = prefix
        self._letter = letter
        self._position = b""
        self.done = False

    def take(self, cost_max: int) -> tuple[list[bytes], int]:
        """Returns what is next, and its cost."""
        found: list[bytes] = []
        cost = 0
        for row_key, row in self._table.scan(self._prefix, self._position):
            self._position = row_key + b"\x00"
            found.append(self._letter + row_key)
            cost += _cost(found[-1], row)
            if cost >= cost_max:
                return found, cost
        self.done = True
        return found, cost


def _cost(row_key: bytes, row: bytes | None) -> int:
    """Returns what reclaiming this row takes, in bindings: a bucket at most. `row`: that of a dropped queue; None: it
    is another row, or finished."""
    if row_key[:1] != RECLAIM_QUEUE or row is None:
        return RECLAIM_KEY_COST
    return min(RECLAIM_KEY_COST + streams_of(row), RECLAIM_QUEUE_COST)
