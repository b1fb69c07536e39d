"""Keeps tables in memory: for tests.

Belongs here: dicts, sorted when scanned. Not here: the delta (delta_*), anything on disk (storage).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator
from itertools import islice

from shoal_slice_node.core.limits import LOG_HEAD_BYTES_MIN, ROW_KEY_BYTES_MAX
from shoal_slice_node.core.tables.tables import Groups, Logs, Rows


class MemoryRows:
    """See tables.Rows."""

    unfit_key_error: type[Exception] = KeyError  # Never raised: a dict has any key.

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._ordered: list[bytes] | None = None  # the keys, ascending; None after a key came or went
        self.get = self._rows.get

    def put(self, key: bytes, value: bytes) -> None:
        assert value, "a value is never empty"
        assert 0 < len(key) <= ROW_KEY_BYTES_MAX, f"no row can have a key of {len(key)} bytes"
        if key not in self._rows:
            self._ordered = None
        self._rows[key] = value

    def insert(self, key: bytes, value: bytes) -> None:
        assert key not in self._rows, "inserted twice"
        self.put(key, value)

    def delete(self, key: bytes) -> None:
        if self._rows.pop(key, None) is not None:
            self._ordered = None

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        if self._ordered is None:
            self._ordered = sorted(self._rows)
        ordered = self._ordered
        for index in range(bisect_left(ordered, max(prefix, start)), len(ordered)):
            key = ordered[index]
            if not key.startswith(prefix):
                return
            yield key, self._rows[key]

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        for key, value in self.scan(prefix, start):
            yield key, None if key in covered else value

    def entries(self) -> int:
        return len(self._rows)

    def changed(self) -> list[bytes]:
        return []

    def scan_below(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self.scan(prefix, start)

    def keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        return [key for key, _ in islice(self.scan(prefix, start), count)]

    def keys_below(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        return self.keys(prefix, start, count)


class MemoryGroups:
    """See tables.Groups."""

    def __init__(self) -> None:
        self._groups: dict[bytes, set[bytes]] = {}

    def add(self, group: bytes, member: bytes) -> None:
        members = self._groups.setdefault(group, set())
        assert member not in members, "added twice"
        members.add(member)

    def remove(self, group: bytes, member: bytes) -> bool:
        members = self._groups[group]
        members.remove(member)
        if not members:
            del self._groups[group]
        return True

    def count(self, group: bytes) -> int:
        return len(self._groups.get(group, ()))

    def entries(self) -> int:
        return sum(map(len, self._groups.values()))

    def has(self, group: bytes, member: bytes) -> bool:
        return member in self._groups.get(group, ())

    def members(self, group: bytes, after: bytes = b"", limit: int = 1000) -> tuple[list[bytes], bytes]:
        ordered = sorted(self._groups.get(group, ()))
        begin = bisect_right(ordered, after)
        page = ordered[begin : begin + limit]
        return page, page[-1] if begin + limit < len(ordered) else b""

    def page(self, group: bytes, after: bytes, limit: int) -> list[bytes]:
        """See delta_groups.BaseGroups."""
        return self.members(group, after, limit)[0]

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        for group in sorted(self._groups):
            for member in sorted(self._groups[group]):
                yield group, member


class MemoryLogs:
    """See tables.Logs."""

    def __init__(self) -> None:
        self._logs: dict[bytes, tuple[list[int], list[bytes]]] = {}  # first offsets, rows; neither is empty

    def append(self, key_id: bytes, first: int, row: bytes) -> None:
        assert row, "a row is never empty"
        firsts, rows = self._logs.setdefault(key_id, ([], []))
        assert not firsts or firsts[-1] < first, "offsets only grow"
        firsts.append(first)
        rows.append(row)

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        firsts, rows = self._logs.get(key_id, ([], []))
        begin = max(bisect_right(firsts, offset) - 1, bisect_left(firsts, low))
        for index in range(begin, len(firsts)):
            yield firsts[index], rows[index]

    def heads(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        for first, row in self.read(key_id, low, offset):
            yield first, row[:LOG_HEAD_BYTES_MIN]

    def trim(self, key_id: bytes, low: int, new_low: int) -> None:
        log = self._logs.get(key_id)
        if log is None:
            return
        firsts, rows = log
        end = bisect_left(firsts, new_low)
        del firsts[:end], rows[:end]
        if not firsts:
            del self._logs[key_id]

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        for key_id in sorted(self._logs):
            for first, row in zip(*self._logs[key_id], strict=True):
                yield key_id, first, row


class MemoryTables:
    """See tables.Tables."""

    def __init__(self) -> None:
        self.key: Rows = MemoryRows()
        self.key_name: Rows = MemoryRows()
        self.queue_by_name: Rows = MemoryRows()
        self.queue: Rows = MemoryRows()
        self.membership: Rows = MemoryRows()
        self.detail: Rows = MemoryRows()
        self.producer: Rows = MemoryRows()
        self.reclaim: Rows = MemoryRows()
        self.partition: Rows = MemoryRows()
        self.meta: Rows = MemoryRows()
        self.transient: Rows = MemoryRows()
        self.due: Rows = MemoryRows()
        self.history: Rows = MemoryRows()
        self.farewell: Rows = MemoryRows()
        self.local_totals: Rows = MemoryRows()
        self.local_hints: Rows = MemoryRows()
        self.binding: Groups = MemoryGroups()
        self.ended: Groups = MemoryGroups()
        self.log: Logs = MemoryLogs()
