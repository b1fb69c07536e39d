"""Reads a checkpoint and reports how far a walk over it is: for offline checks, which may take minutes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeVar

from shoal_slice_node.core.tables.delta_groups import BaseGroups
from shoal_slice_node.core.tables.delta_logs import BaseLogs
from shoal_slice_node.core.tables.delta_rows import BaseRows
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, ROW_TABLES
from shoal_slice_node.storage.lmdb_tables import LmdbBase

Progress = Callable[[str, int, int], None]
"""A function that is told of progress: the phase, how much is done, and an estimated total, in rows or records."""

PROGRESS_EVERY = 4096
"""The number of rows between two reports of progress: a few milliseconds."""

Item = TypeVar("Item")


class WalkedBase:
    """Counts the rows that all scans read. See delta.Base."""

    def __init__(self, base: LmdbBase, progress: Progress) -> None:
        self._base = base
        self._progress = progress
        self._phase = ""
        self._done = 0
        self._total = sum(base.rows(name).entries() for name in (*ROW_TABLES, *LOCAL_TABLES))
        self._total += sum(base.groups(name).entries() for name in GROUP_TABLES)

    def begin(self, phase: str) -> None:
        self._phase, self._done = phase, 0
        self._progress(phase, 0, self._total)

    def count(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            self._done += 1
            if self._done % PROGRESS_EVERY == 0:
                self._progress(self._phase, self._done, max(self._total, self._done))
            yield item

    def rows(self, table: str) -> BaseRows:
        return _WalkedRows(self, self._base.rows(table))

    def groups(self, table: str) -> BaseGroups:
        return _WalkedGroups(self, self._base.groups(table))

    def logs(self, table: str) -> BaseLogs:
        return _WalkedLogs(self, self._base.logs(table))


class _WalkedRows:
    def __init__(self, walked: WalkedBase, rows: BaseRows) -> None:
        self._walked = walked
        self._rows = rows
        self.get = rows.get
        self.unfit_key_error = rows.unfit_key_error
        self.entries = rows.entries
        self.keys = rows.keys

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._walked.count(self._rows.scan(prefix, start))

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        return self._walked.count(self._rows.scan_beside(covered, prefix, start))


class _WalkedGroups:
    def __init__(self, walked: WalkedBase, groups: BaseGroups) -> None:
        self._walked = walked
        self._groups = groups
        self.count = groups.count
        self.entries = groups.entries
        self.has = groups.has
        self.page = groups.page

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return self._walked.count(self._groups.scan())


class _WalkedLogs:
    def __init__(self, walked: WalkedBase, logs: BaseLogs) -> None:
        self._walked = walked
        self._logs = logs
        self.read = logs.read
        self.heads = logs.heads

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        return self._walked.count(self._logs.scan())
