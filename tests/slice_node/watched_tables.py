"""Tables in memory that count the log rows read, and those read whole. Their scans end with an error once the next step
has begun, as those of a store do when a checkpoint ends meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, LOG_TABLE, ROW_TABLES
from shoal_slice_node.core.turns import Work

Item = TypeVar("Item")
Result = TypeVar("Result")
_SCANS = {"scan", "scan_below", "read", "heads"}


class WatchedTables(SimpleNamespace):
    """`log_rows`: read since it was last set to 0. `all_rows`, `whole_rows`: read since these were, by
    any step, and those of them that were read whole."""

    def __init__(self) -> None:
        tables = MemoryTables()
        super().__init__(**{name: _Watched(self, name, getattr(tables, name)) for name in self._names()})
        self.step = self.log_rows = self.all_rows = self.whole_rows = 0

    @staticmethod
    def _names() -> tuple[str, ...]:
        return (*ROW_TABLES, *LOCAL_TABLES, *GROUP_TABLES, LOG_TABLE)

    def finish(self, work: Work[Result], others: Callable[[], object] = bool) -> tuple[Result, int, int]:
        """Its result, its steps, and the most log rows that one of them read. Every scan ends with its step. `others`
        is done between two of them."""
        steps = rows_max = 0
        while True:
            self.log_rows = 0
            try:
                next(work)
            except StopIteration as stop:
                result: Result = stop.value
                return result, steps, max(rows_max, self.log_rows)
            self.step += 1
            steps += 1
            rows_max = max(rows_max, self.log_rows)
            others()


class _Watched:
    def __init__(self, tables: WatchedTables, name: str, table: Any) -> None:
        self._tables = tables
        self._name = name
        self._table = table

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._table, method)
        if method not in _SCANS:
            return found
        return lambda *arguments, **named: self._scanned(found(*arguments, **named), method != "heads")

    def _scanned(self, items: Iterator[Item], whole: bool) -> Iterator[Item]:
        began = self._tables.step
        for item in items:
            self._tables.log_rows += self._name == LOG_TABLE
            self._tables.all_rows += self._name == LOG_TABLE
            self._tables.whole_rows += whole and self._name == LOG_TABLE
            yield item
            assert self._tables.step == began, f"a scan of {self._name} goes on in a later step"
