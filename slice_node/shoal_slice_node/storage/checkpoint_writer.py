"""Writes one frozen delta into LMDB: all tables in key order, in one transaction together with its LSN.

Why a crash at any point is harmless: LMDB commits by writing new pages and syncing them, then writing one meta page and
syncing it. Before that the store is the previous checkpoint, after it the new one, each with its own LSN; the journal
has the rest. Writing the same delta twice gives the same result as once: puts and deletes state the new value, not a
change.

Belongs here: writing pieces as rows on disk. Not here: how pieces are sent (checkpointer_process).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import lmdb

from shoal_slice_node.core.rows.small_rows import HINT
from shoal_slice_node.core.tables.delta_piece import ID_BYTES, Piece
from shoal_slice_node.core.tables.tables import LOG_TABLE
from shoal_slice_node.storage.limits import LOG_PART_BYTES_MAX
from shoal_slice_node.storage.lmdb_layout import (
    FORMAT,
    FORMAT_ROW,
    IDENTITY_ROW,
    LOG_KEY,
    LOG_START,
    LSN_ROW,
    STORE,
    TABLE_FORMS_ROW,
    TABLE_FORMS_VALUE,
    TABLES,
    check_format,
    check_table_forms,
    errno_of,
    errors_translated,
    open_environment,
    open_table,
    read_format,
)
from shoal_slice_node.storage.store_room import StoreRoom, reserve_lock_file, settle

HINTS_OF = "binding"
HINTS = "local_hints"


class CheckpointWriter:
    """Owns the write environment of `folder`; makes a store of this identity where there is none. `room`: what the
    process knows of the store's room on disk. After an error it must be closed. Raises Conflict, Corrupt,
    ResourceExhausted."""

    def __init__(self, folder: Path, identity: bytes = b"", room: StoreRoom | None = None) -> None:
        self._folder = folder
        self._room = room or StoreRoom(folder)
        settle(folder)
        self._environment = environment = open_environment(folder, readonly=False)
        self._lock_file: int | None = None
        try:
            with errors_translated(folder):
                self._lock_file = reserve_lock_file(folder)
            with self._writing():
                environment.reader_check()  # else a killed reader would keep its old pages from reuse for good
                with environment.begin(write=True) as transaction:
                    self._tables = self._open(transaction, identity)
            self._room.reserve(self._used_bytes())
        except BaseException:
            self.close()
            raise

    def _open(self, transaction: Any, identity: bytes) -> dict[str, Any]:
        """Opens all tables. A new store is made in one transaction: a kill before its commit leaves nothing."""
        found = read_format(self._environment, transaction, self._folder)
        if found is not None:
            check_format(found, self._folder)
        tables = {table: open_table(self._environment, table, True, transaction) for table in TABLES}
        if found is not None:
            check_table_forms(transaction.get(TABLE_FORMS_ROW, db=tables[STORE]), self._folder)
        else:
            forms = {FORMAT_ROW: FORMAT, TABLE_FORMS_ROW: TABLE_FORMS_VALUE}
            rows = {**forms, LSN_ROW: bytes(8), IDENTITY_ROW: identity}
            for row_key, row in rows.items():
                if row:
                    transaction.put(row_key, row, db=tables[STORE])
        return tables

    def close(self) -> None:
        self._environment.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Translates errors of a write as `errors_translated` does, but a write that lacked room is no damage."""
        with errors_translated(self._folder):
            try:
                yield
            except (lmdb.Error, OSError) as error:
                lacking = self._room.failed(errno_of(error), self._used_bytes())
                if lacking is not None:
                    raise lacking from error
                raise

    def _used_bytes(self) -> int:
        """Returns the file's bytes that the last commit uses."""
        used_pages: int = self._environment.info()["last_pgno"] + 1
        return used_pages * int(self._environment.stat()["psize"])

    def write(self, pieces: Iterable[Piece], lsn: int) -> dict[str, Any]:
        """Writes all of `pieces`, or nothing. Returns figures: `fields` written, the seconds of writing (`write_s`) and
        of the commit (`commit_s`), and `emptied`: the keys that lost their last binding, now in `local_hints`.
        Raises ResourceExhausted; Corrupt, with the system's number as `value`."""
        started = perf_counter()
        gathered: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for shape, table, flat in pieces:
            gathered[shape, table] += flat
        rows = sum(len(flat) for flat in gathered.values())
        with self._writing():
            transaction = self._environment.begin(write=True)
            try:
                emptied = self._write(transaction, gathered)
                transaction.put(LSN_ROW, lsn.to_bytes(8, "big"), db=self._tables[STORE])
                written = perf_counter()
                transaction.commit()
            except BaseException:
                transaction.abort()
                raise
        self._room.reserve(self._used_bytes())
        commit_s = perf_counter() - written
        return {"fields": rows, "write_s": written - started, "commit_s": commit_s, "emptied": emptied}

    def _write(self, transaction: Any, gathered: dict[tuple[str, str], list[Any]]) -> list[bytes]:
        emptied: list[bytes] = []
        for (shape, table), flat in gathered.items():
            if shape == "rows":
                self._write_rows(transaction.cursor(self._tables[table]), flat)
        for table in sorted({table for shape, table in gathered if shape in ("add", "remove")}):
            came, went = gathered.get(("add", table), []), gathered.get(("remove", table), [])
            emptied += self._write_groups(transaction, table, came, went)
        cursor = transaction.cursor(self._tables[LOG_TABLE])
        _trim(cursor, gathered.get(("trim", LOG_TABLE), []))
        _append(cursor, gathered.get(("append", LOG_TABLE), []))
        return emptied

    def _write_rows(self, cursor: Any, flat: list[bytes]) -> None:
        items = sorted(zip(flat[::2], flat[1::2], strict=True))
        for key, value in items:
            if not value and cursor.set_key(key):
                cursor.delete()
        _put_sorted(cursor, [item for item in items if item[1]])

    def _write_groups(self, transaction: Any, table: str, came: list[bytes], went: list[bytes]) -> list[bytes]:
        cursor = transaction.cursor(self._tables[table])
        went.sort()
        for pair in went:
            if cursor.set_key_dup(pair[:ID_BYTES], pair[ID_BYTES:]):
                cursor.delete()
        came.sort()
        cursor.putmulti([(pair[:ID_BYTES], pair[ID_BYTES:]) for pair in came])
        if table != HINTS_OF:
            return []
        lost = (group for group, _ in groupby(went, lambda pair: pair[:ID_BYTES]))
        empty = [group for group in lost if not cursor.set_key(group)]
        transaction.cursor(self._tables[HINTS]).putmulti([(group, HINT) for group in empty])
        return empty


def _put_sorted(cursor: Any, items: list[tuple[bytes, bytes]]) -> None:
    """Puts sorted rows into a table. Rows beyond the table's end are appended, which fills pages; inserting them would
    split pages and leave them half empty."""
    end = bisect_right(items, cursor.key(), key=itemgetter(0)) if cursor.last() else 0
    cursor.putmulti(items[:end])
    cursor.putmulti(items[end:], append=True)


def _trim(cursor: Any, flat: list[Any]) -> None:
    for key_id, low, new_low in sorted(zip(flat[::3], flat[1::3], flat[2::3], strict=True)):
        end = LOG_START.pack(key_id, new_low)
        found = cursor.set_range(LOG_START.pack(key_id, low))
        while found and cursor.key() < end:
            cursor.delete()
            found = bool(cursor.key())


def _append(cursor: Any, flat: list[Any]) -> None:
    items: list[tuple[bytes, bytes]] = []
    for key_id, first, row in sorted(zip(flat[::3], flat[1::3], flat[2::3], strict=True)):
        for part, begin in enumerate(range(0, len(row), LOG_PART_BYTES_MAX)):
            items.append((LOG_KEY.pack(key_id, first, part), row[begin : begin + LOG_PART_BYTES_MAX]))
    cursor.putmulti(items)
