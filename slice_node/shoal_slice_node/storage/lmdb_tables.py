"""Reads the checkpoint, as the delta's base: one LMDB snapshot, renewed when the checkpointer has committed.

Belongs here: reading. Not here: writing (checkpoint_writer, in another process), the form (lmdb_layout).
Every table has its own read transaction, with that table as its default. So `get` is LMDB's own method, without a
Python frame around it. All these transactions show one snapshot: the only writer commits when the main process asks it
to, and then all of them are renewed.
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
    IDENTITY_ROW,
    LOG_KEY,
    LOG_START,
    LSN_ROW,
    STORE,
    TABLE_FORMS_ROW,
    TABLES,
    check_table_forms,
    check_version,
    errors_translated,
    open_environment,
    open_table,
)
from shoal_slice_node.storage.mapped_memory import let_go, warm_file


class LmdbRows:
    """Reads a table of rows. See delta_rows.BaseRows."""

    unfit_key_error: type[Exception] = lmdb.BadValsizeError

    def __init__(self, transaction: Any, database: Any) -> None:
        self._database = database
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        """Reads from the snapshot of `transaction` from now on. `get` is then a new function."""
        self._transaction = transaction
        self.get = transaction.get
        self._cursor: Any = None

    def keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        """Returns keys by one cursor, which is made at the first call: a cursor ends with its snapshot."""
        if self._cursor is None:
            self._cursor = self._transaction.cursor()
        cursor = self._cursor
        found: list[bytes] = []
        more = count > 0 and cursor.set_range(max(prefix, start))
        while more and (key := cursor.key()).startswith(prefix):
            found.append(key)
            more = len(found) < count and cursor.next()
        return found

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
        """Yields rows as `scan` does, with None for the values of `covered` keys: these are not read, since large
        values are copied page by page."""
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
    """Reads a table of groups. See delta_groups.BaseGroups."""

    def __init__(self, transaction: Any, database: Any) -> None:
        self._database = database
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        """Reads from the snapshot of `transaction` from now on, with a new cursor: a cursor ends with its snapshot."""
        self._transaction = transaction
        self._cursor = transaction.cursor()
        self._find = self._cursor.set_key
        self._count = self._cursor.count

    def count(self, group: bytes) -> int:
        return self._count() if self._find(group) else 0

    def entries(self) -> int:
        """Returns the number of members in all groups: LMDB counts each duplicate as an entry."""
        return int(self._transaction.stat(self._database)["entries"])

    def has(self, group: bytes, member: bytes) -> bool:
        return bool(self._cursor.set_key_dup(group, member))

    def page(self, group: bytes, after: bytes, limit: int) -> list[bytes]:
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
    """Reads the log table. See delta_logs.BaseLogs."""

    def __init__(self, transaction: Any) -> None:
        self.renewed(transaction)

    def renewed(self, transaction: Any) -> None:
        self._transaction = transaction

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        cursor = self._transaction.cursor()
        if _seek(cursor, key_id, low, offset):
            for found_id, first, row in _joined(cursor):
                if found_id != key_id:
                    return
                yield first, row

    def heads(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        cursor = self._transaction.cursor()
        found = _seek(cursor, key_id, low, offset)
        while found:
            found_id, first, number = LOG_KEY.unpack(cursor.key())
            if number:  # Of a row that was yielded: the next row may be hundreds of parts ahead.
                found = cursor.set_range(LOG_START.pack(found_id, first + 1))
                continue
            if found_id != key_id:
                return
            yield first, cursor.value()
            found = cursor.next()

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        cursor = self._transaction.cursor()
        return _joined(cursor) if cursor.first() else iter(())


def _seek(cursor: Any, key_id: bytes, low: int, offset: int) -> bool:
    """Sets the cursor to part 0 of the last row of a key with first <= offset, else of the first row from `low` on.
    Returns False if nothing is there; it may be a row of another key."""
    found = cursor.set_range(LOG_START.pack(key_id, max(offset, low) + 1))
    start = low
    if cursor.prev() if found else cursor.last():
        before, first, _ = LOG_KEY.unpack(cursor.key())
        if before == key_id:
            start = max(low, first)
    return bool(cursor.set_range(LOG_START.pack(key_id, start)))


def _joined(cursor: Any) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields (key id, first offset, row) from the cursor's position on. A row is yielded when part 0 of the next row is
    met."""
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
    """Reads a checkpoint. See delta.Base. `folder` must hold a store (the checkpointer makes it). Raises Corrupt,
    Conflict."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = open_environment(folder, readonly=True)
        try:
            check_version(self._environment, folder)
            with errors_translated(folder):
                self._databases = {table: open_table(self._environment, table, create=False) for table in TABLES}
                self._begin()
            check_table_forms(self._transactions[STORE].get(TABLE_FORMS_ROW), folder)
        except BaseException:
            self._environment.close()
            raise
        self._readers: list[tuple[str, LmdbRows | LmdbGroups | LmdbLogs]] = []

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
        """Returns the snapshot's LSN: the snapshot has everything up to it."""
        return int.from_bytes(cast(bytes, self._transactions[STORE].get(LSN_ROW)), "big")

    @property
    def is_newest(self) -> bool:
        """Returns whether nothing was committed since the snapshot. Looks at LMDB's meta pages: a new read transaction
        does not see a commit whose process was killed before it had told of it, though the next writer makes it
        seen."""
        newest: int = self._environment.info()["last_txnid"]
        seen: int = self._transactions[STORE].id()
        return newest == seen

    @property
    def identity(self) -> bytes:
        """Returns the identity of the data, encoded; b"" if the store has none."""
        return cast(bytes, self._transactions[STORE].get(IDENTITY_ROW) or b"")

    @property
    def disk_bytes(self) -> int:
        """Returns the bytes of all pages in use, including pages that are free for reuse."""
        return int(self._environment.info()["last_pgno"] + 1) * int(self._environment.stat()["psize"])

    @property
    def tables_bytes(self) -> int:
        """Returns the bytes of the pages that the snapshot's tables consist of: LMDB keeps their number, so no page is
        read."""
        stats = [self._transactions[table].stat(database) for table, database in self._databases.items()]
        return sum(one["psize"] * (one["branch_pages"] + one["leaf_pages"] + one["overflow_pages"]) for one in stats)

    def renew(self) -> None:
        """Renews the snapshot to the newest commit. A `get` of a table's base that is held elsewhere must be taken anew
        (Delta.drop_frozen does this)."""
        for transaction in self._transactions.values():
            transaction.abort()
        self._begin()
        for table, reader in self._readers:
            reader.renewed(self._transactions[table])

    def warm(self) -> None:
        """Asks the kernel to read a cold checkpoint as a whole, not row by row. Blocks: call it in a thread."""
        warm_file(self._folder / DATA_FILE)

    def let_go_of_memory(self) -> int:
        """Removes the file's pages from this process's resident memory (the page cache keeps them). Returns the bytes
        freed."""
        return let_go(self._environment.path())

    def close(self) -> None:
        for transaction in self._transactions.values():
            transaction.abort()
        self._environment.close()
