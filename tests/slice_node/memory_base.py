"""In-memory tables as a delta's base, and a checkpointer for them: applies pieces as the real one does."""

from __future__ import annotations

from collections.abc import Iterable

from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.delta_piece import ID_BYTES, Piece
from shoal_slice_node.core.tables.memory_tables import MemoryGroups, MemoryLogs, MemoryRows, MemoryTables


class MemoryBase:
    """See delta.Base."""

    def __init__(self) -> None:
        self.tables = MemoryTables()

    def rows(self, table: str) -> MemoryRows:
        rows: MemoryRows = getattr(self.tables, table)
        return rows

    def groups(self, table: str) -> MemoryGroups:
        groups: MemoryGroups = getattr(self.tables, table)
        return groups

    def logs(self, table: str) -> MemoryLogs:
        logs: MemoryLogs = getattr(self.tables, table)
        return logs

    def apply(self, pieces: Iterable[Piece]) -> None:
        """In the order in which they come."""
        for shape, table, flat in pieces:
            if shape == "rows":
                for key, value in zip(flat[::2], flat[1::2], strict=True):
                    self.rows(table).put(key, value) if value else self.rows(table).delete(key)
            elif shape in ("add", "remove"):
                change = getattr(self.groups(table), shape)
                for pair in flat:
                    change(pair[:ID_BYTES], pair[ID_BYTES:])
            else:
                for key_id, second, third in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                    getattr(self.logs(table), shape)(key_id, second, third)

    def melt(self, delta: Delta) -> None:
        """The frozen delta is active again: it could not be written."""
        while delta.melt():
            pass
        delta.drop_frozen()
        while delta.free():
            pass

    def checkpoint(self, delta: Delta) -> None:
        """The frozen delta goes into the base, and away."""
        self.apply(list(delta.pieces()))
        delta.drop_frozen()
        while delta.free():
            pass
