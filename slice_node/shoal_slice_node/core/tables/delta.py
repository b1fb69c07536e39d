"""Keeps the delta: all tables over a base. Reads see the active delta, the frozen delta, the base, in that order.

Life of a delta: active -> freeze() -> pieces(), to be written into the base -> the base is renewed and drop_frozen()
called in one step -> free() in turns until it returns False. If it cannot be written: melt() in turns until it returns
False -> drop_frozen() and free(), and all is active again.

Belongs here: the set of tables and their common life. Not here: the shapes (delta_rows, delta_groups, delta_logs), when
to freeze, the writing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from shoal_slice_node.core.limits import PIECE_ROWS_MAX
from shoal_slice_node.core.tables.delta_groups import BaseGroups, DeltaGroups
from shoal_slice_node.core.tables.delta_logs import BaseLogs, DeltaLogs
from shoal_slice_node.core.tables.delta_piece import Piece
from shoal_slice_node.core.tables.delta_rows import BaseRows, DeltaRows
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, LOG_TABLE, ROW_TABLES, Groups, Logs, Rows

DETAIL_PREFIX_BYTES = 8
"""Details are scanned by queue id."""


class Base(Protocol):
    """Gives the layers below, by table name."""

    def rows(self, table: str) -> BaseRows: ...

    def groups(self, table: str) -> BaseGroups: ...

    def logs(self, table: str) -> BaseLogs: ...


class Delta:
    """See tables.Tables."""

    def __init__(self, base: Base) -> None:
        self.key: Rows = DeltaRows(base.rows("key"))
        self.key_name: Rows = DeltaRows(base.rows("key_name"))
        self.queue_by_name: Rows = DeltaRows(base.rows("queue_by_name"))
        self.queue: Rows = DeltaRows(base.rows("queue"))
        self.membership: Rows = DeltaRows(base.rows("membership"))
        self.detail: Rows = DeltaRows(base.rows("detail"), DETAIL_PREFIX_BYTES)
        self.producer: Rows = DeltaRows(base.rows("producer"), ordered=True)
        self.reclaim: Rows = DeltaRows(base.rows("reclaim"), ordered=True)
        self.partition: Rows = DeltaRows(base.rows("partition"))
        self.meta: Rows = DeltaRows(base.rows("meta"))
        self.transient: Rows = DeltaRows(base.rows("transient"))
        self.due: Rows = DeltaRows(base.rows("due"))
        self.history: Rows = DeltaRows(base.rows("history"))
        self.farewell: Rows = DeltaRows(base.rows("farewell"), ordered=True)
        self.local_totals: Rows = DeltaRows(base.rows("local_totals"))
        self.local_hints: Rows = DeltaRows(base.rows("local_hints"), ordered=True)
        self._bindings = DeltaGroups(base.groups("binding"))
        self.binding: Groups = self._bindings
        self.ended: Groups = DeltaGroups(base.groups("ended"))
        self.log: Logs = DeltaLogs(base.logs(LOG_TABLE))
        rows: list[tuple[str, DeltaRows]] = [(name, getattr(self, name)) for name in (*ROW_TABLES, *LOCAL_TABLES)]
        groups: list[tuple[str, DeltaGroups]] = [(name, getattr(self, name)) for name in GROUP_TABLES]
        logs: DeltaLogs = getattr(self, LOG_TABLE)
        self._logs = logs
        self._all: list[tuple[str, DeltaRows | DeltaGroups | DeltaLogs]] = [*rows, *groups, (LOG_TABLE, logs)]

    @property
    def rows_active(self) -> int:
        """Returns the number of rows, members and trims changed since the last freeze."""
        return sum(table.rows for _, table in self._all)

    @property
    def bytes_active(self) -> int:
        """Returns the memory of these changes, about."""
        return sum(table.bytes_about for _, table in self._all)

    def freeze(self) -> None:
        """Freezes the active delta. O(1). The delta frozen before must have been dropped and freed."""
        for _, table in self._all:
            table.freeze()

    def pieces(self) -> Iterator[Piece]:
        """Yields the frozen delta; each step takes under a millisecond. May be called again, from the delta's start."""
        for name, table in self._all:
            yield from table.pieces(name, PIECE_ROWS_MAX)

    def trimmed(self) -> Iterator[int]:
        """Yields the memory, about, of what the frozen delta need not write any more, since it was trimmed: some of it
        with each step. The sum counts."""
        return self._logs.trimmed(PIECE_ROWS_MAX)

    def melt(self) -> bool:
        """Moves a bounded part of the frozen delta into the active one; False when nothing is left."""
        return any(table.melt(PIECE_ROWS_MAX) for _, table in self._all)

    def take_undone(self) -> list[bytes]:
        """Returns the keys of which a binding came and went, and left no trace as the delta melted, since the last
        call: no checkpoint will see that such a key lost its last one. A key may come twice."""
        return self._bindings.take_undone()

    def drop_frozen(self) -> None:
        """Drops the frozen delta, which the base now has: call together with the base's renewal. O(1)."""
        for _, table in self._all:
            table.drop_frozen()

    def free(self) -> bool:
        """Frees a bounded part of what was dropped; False when nothing is left."""
        return any(table.free(PIECE_ROWS_MAX) for _, table in self._all)
