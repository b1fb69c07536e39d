"""Lays an empty delta over tables, to try a change on: what is written goes into the delta, the tables stay the same.

Belongs here: the tables as the base of a delta. Not here: the delta (delta.py), what is tried (core/verbs/atomic).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.delta_groups import BaseGroups
from shoal_slice_node.core.tables.delta_logs import BaseLogs
from shoal_slice_node.core.tables.delta_rows import BaseRows
from shoal_slice_node.core.tables.tables import Rows, Tables


class _RowsBelow:
    """See delta_rows.BaseRows."""

    unfit_key_error: type[Exception] = KeyError  # Never raised: tables return None for a key that no row can have.

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._rows.scan(prefix, start)

    def keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        return [key for key, _ in islice(self._rows.scan(prefix, start), count)]

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        yield from self._rows.scan(prefix, start)

    def entries(self) -> int:
        return self._rows.entries()


class _TablesBelow:
    """See delta.Base."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def rows(self, table: str) -> BaseRows:
        return _RowsBelow(getattr(self._tables, table))

    def groups(self, table: str) -> BaseGroups:
        found: BaseGroups = getattr(self._tables, table)
        return found

    def logs(self, table: str) -> BaseLogs:
        found: BaseLogs = getattr(self._tables, table)
        return found


def overlay(tables: Tables) -> Delta:
    """Returns tables that read as these do. Writes stay in them; drop them to take the writes back. The tables below
    must not change meanwhile, except that a checkpoint may renew their base."""
    return Delta(_TablesBelow(tables))
