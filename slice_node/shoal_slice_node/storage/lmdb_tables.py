"""The checkpoint as the delta's base: reads of one LMDB snapshot, renewed when the checkpointer has committed.

Belongs here: reading. Not here: writing (checkpoint_writer, in another process), the form (lmdb_layout).
Every table has a read transaction of its own with that table as default: `get` is then LMDB's own, without a Python
frame around it. They show one snapshot: the only writer commits only when it is told to, and then all are renewed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import lmdb

from shoal_slice_node.core.tables.delta_groups import BaseGroups
from shoal_slice_node.core.tables.delta_logs import BaseLogs
from shoal_slice_node.core.tables.delta_rows import BaseRows
from shoal_slice_node.storage.lmdb_layout import (
    DATA_FILE,
    FORMAT_ROW,
    IDENTITY_ROW,
    LOG_KEY,
    LOG_START,
    LSN_ROW,
    STORE,
    TABLES,
    check_format,
    errors_translated,
    open_environment,
    open_table,
)
from shoal_slice_node.storage.mapped_memory import let_go, warm_file


class LmdbRows:
    """See delta_rows.BaseRows."""

    unfit_key_error: type[Exception] = lmdb.BadValsizeError

    def __init__(self, transaction: Any, database: Any) -> None:
        self._database = database
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        """`get` is another one from now on."""
        self._transaction = transaction
        self.get = transaction.get

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor()
        if not cursor.set_range(max(prefix, start)):
            return
        for key, value in cursor:
            if not key.startswith(prefix):
                return
            yield key, value

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Large values are copied page by page: not those that are not asked for."""
        cursor = self._transaction.cursor()
        if not cursor.set_range(max(prefix, start)):
            return
        for key in cursor.iternext(keys=True, values=False):
            if not key.startswith(prefix):
                return
            yield key, None if key in covered else cursor.value()

    def entries(self) -> int:
        return int(self._transaction.stat(self._database)["entries"])


class LmdbGroups:
    """See delta_groups.BaseGroups."""

    def __init__(self, transaction: Any, database: Any) -> None:
        self._database = database
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        """A cursor ends with its snapshot."""
        self._transaction = transaction
        self._cursor = transaction.cursor()
        self._find = self._cursor.set_key
        self._count = self._cursor.count

    def count(self, group: bytes) -> int:
        return self._count() if self._find(group) else 0

    def entries(self) -> int:
        """LMDB counts duplicates one by one."""
        return int(self._transaction.stat(self._database)["entries"])

    def members(self, group: bytes, after: bytes = b"", limit: int = 1000) -> list[bytes]:
        cursor = self._cursor
        if after:
            above = int.from_bytes(after, "big") + 1
            if above >> 64 or not cursor.set_range_dup(group, above.to_bytes(8, "big")):
                return []
        elif not cursor.set_key(group):
            return []
        return list(islice(cursor.iternext_dup(), limit))

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._transaction.cursor())


class LmdbLogs:
    """See delta_logs.BaseLogs."""

    def __init__(self, transaction: Any) -> None:
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        self._transaction = transaction

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        cursor = self._transaction.cursor()
        found = cursor.set_range(LOG_START.pack(key_id, max(offset, low) + 1))
        start = low
        if cursor.prev() if found else cursor.last():
            before, first, _ = LOG_KEY.unpack(cursor.key())
            if before == key_id:
                start = max(low, first)
        if cursor.set_range(LOG_START.pack(key_id, start)):
            for found_id, first, row in _joined(cursor):
                if found_id != key_id:
                    return
                yield first, row

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        cursor = self._transaction.cursor()
        return _joined(cursor) if cursor.first() else iter(())


def _joined(cursor: Any) -> Iterator[tuple[bytes, int, bytes]]:
    """(key id, first, row) from where the cursor stands: a row is handed on when the next one's part 0 is met."""
    parts: list[bytes] = []
    key_id, first = b"", 0
    for key, part in cursor:
        here, here_first, number = LOG_KEY.unpack(key)
        if number == 0 and parts:
            yield key_id, first, parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
        assert number == len(parts), "a log row lacks a part"
        key_id, first = here, here_first
        parts.append(part)
    if parts:
        yield key_id, first, parts[0] if len(parts) == 1 else b"".join(parts)


class LmdbBase:
    """See delta.Base. `folder` must hold a store (the checkpointer makes it). Raises Corrupt, Conflict."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = open_environment(folder, readonly=True)
        with errors_translated(folder):
            self._databases = {table: open_table(self._environment, table, create=False) for table in TABLES}
        self._readers: list[tuple[str, LmdbRows | LmdbGroups | LmdbLogs]] = []
        self._begin()
        check_format(self._transactions[STORE].get(FORMAT_ROW), folder)

    def _begin(self) -> None:
        self._transactions = {
            table: self._environment.begin(db=database) for table, database in self._databases.items()
        }

    def rows(self, table: str) -> BaseRows:
        rows = LmdbRows(self._transactions[table], self._databases[table])
        self._readers.append((table, rows))
        return rows

    def groups(self, table: str) -> BaseGroups:
        groups = LmdbGroups(self._transactions[table], self._databases[table])
        self._readers.append((table, groups))
        return groups

    def logs(self, table: str) -> BaseLogs:
        logs = LmdbLogs(self._transactions[table])
        self._readers.append((table, logs))
        return logs

    @property
    def lsn(self) -> int:
        """Of the snapshot: everything up to it is in."""
        return int.from_bytes(cast(bytes, self._transactions[STORE].get(LSN_ROW)), "big")

    @property
    def identity(self) -> bytes:
        """Whose data it is; b"" if it does not say."""
        return cast(bytes, self._transactions[STORE].get(IDENTITY_ROW) or b"")

    @property
    def disk_bytes(self) -> int:
        """Of the pages in use, with those that are free to be used again."""
        return int(self._environment.info()["last_pgno"] + 1) * int(self._environment.stat()["psize"])

    def renew(self) -> None:
        """To the newest commit. Whoever holds a `get` of a table's base must take it anew (Delta.drop_frozen does)."""
        for transaction in self._transactions.values():
            transaction.abort()
        self._begin()
        for table, reader in self._readers:
            reader.renewed(self._transactions[table])

    def warm(self) -> None:
        """Asks the kernel to read a cold checkpoint in one go, not row by row. Blocks: call it in a thread."""
        warm_file(self._folder / DATA_FILE)

    def let_go_of_memory(self) -> int:
        """Takes the file's pages off this process's resident memory (the page cache keeps them): bytes before."""
        return let_go(self._environment.path())

    def close(self) -> None:
        for transaction in self._transactions.values():
            transaction.abort()
        self._environment.close()
