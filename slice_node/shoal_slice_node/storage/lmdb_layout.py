"""Defines the checkpoint's form: one LMDB environment, with one named database per table.

    rows tables       key -> value
    binding, ended    group -> members of 8 bytes        DUPSORT, DUPFIXED
    log               key id (8) | first offset (8, big-endian) | part (2, big-endian) -> up to LOG_PART_BYTES_MAX bytes
    store             b"format" -> b"6"      b"lsn" -> checkpoint LSN (8, big-endian)
                      b"table_forms" -> the forms of TABLE_FORMS, as "TABLE=FORM ..."
                      b"identity" -> whose data it is (shoal_contract.data_identity); absent: not said

A log row is its parts 0, 1, ... joined. LMDB keeps a value above about 2 KB on pages of its own, and needs long to find
several consecutive free pages. A part fits one page, so it needs no such search.

Belongs here: names, how an environment is opened, what foreign errors mean. Not here: reading (lmdb_tables), writing
(checkpoint_writer).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any, Final, cast

import lmdb

from shoal_contract.errors import Conflict, Corrupt, ResourceExhausted, ShoalError
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, LOG_TABLE, ROW_TABLES
from shoal_slice_node.storage.limits import STORE_BYTES_MAX, STORE_READERS_MAX
from shoal_slice_node.storage.mapped_memory import LMDB_FILE, fits_memory

FORMAT: Final = b"6"
STORE: Final = "store"
FORMAT_ROW: Final = b"format"
LSN_ROW: Final = b"lsn"
IDENTITY_ROW: Final = b"identity"
TABLE_FORMS: Final = {"binding": 1, "ended": 1, "key_name": 1, "queue_by_name": 1}
"""The layouts of tables whose rows have no form byte. They have a row for each key, queue or membership, which is just
a name or an id: one byte in each would buy nothing. Members of a group cannot have one, since LMDB keeps them as
bare ids of equal size. Another layout of such a table is another form here."""

TABLE_FORMS_ROW: Final = b"table_forms"
TABLE_FORMS_VALUE: Final = " ".join(f"{table}={form}" for table, form in TABLE_FORMS.items()).encode()
DATA_FILE: Final = LMDB_FILE
LOG_KEY: Final = Struct(">8sQH")
LOG_START: Final = Struct(">8sQ")
TABLES: Final = (*ROW_TABLES, *LOCAL_TABLES, *GROUP_TABLES, LOG_TABLE, STORE)


def open_environment(folder: Path, readonly: bool) -> Any:
    """Opens an lmdb.Environment. There may be one per folder and process. Raises Corrupt, ResourceExhausted."""
    with errors_translated(folder):
        return lmdb.open(
            str(folder),
            map_size=STORE_BYTES_MAX,
            max_dbs=len(TABLES),
            readonly=readonly,
            create=not readonly,
            readahead=fits_memory(folder / DATA_FILE),  # 16 more pages for each page fault: a cold store warms quickly
            meminit=False,
            max_readers=STORE_READERS_MAX,
            mode=0o600,
        )


def open_table(environment: Any, table: str, create: bool, transaction: Any = None) -> Any:
    """Opens the named database of `table`. With `create` it is made if it is absent, by `transaction` or by a
    transaction of its own."""
    groups = table in GROUP_TABLES
    return environment.open_db(table.encode(), transaction, create=create, dupsort=groups, dupfixed=groups)


def read_format(environment: Any, transaction: Any, folder: Path) -> bytes | None:
    """Returns the format that a store names; None: the store is empty, as after a kill while it was made. Raises
    Corrupt for a store that is not empty and names none."""
    found = None
    entries = environment.stat()["entries"]
    for table in TABLES:
        try:
            database = open_table(environment, table, create=False, transaction=transaction)
        except lmdb.NotFoundError:
            continue
        entries += transaction.stat(database)["entries"] - 1
        if table == STORE:
            found = transaction.get(FORMAT_ROW, db=database)
    if found is None and entries:
        check_format(None, folder)
    return cast(bytes | None, found)


def is_made(folder: Path) -> bool:
    """Returns whether `folder` holds a store that was made completely. Raises Corrupt."""
    path = folder / DATA_FILE
    if not path.is_file() or not path.stat().st_size:
        return False
    environment = open_environment(folder, readonly=True)
    try:
        with errors_translated(folder), environment.begin() as transaction:
            return read_format(environment, transaction, folder) is not None
    finally:
        environment.close()


def check_format(found: bytes | None, folder: Path) -> None:
    """Checks the format that a store names. Raises Conflict for another format, Corrupt for none."""
    if found is None:
        raise Corrupt(f"{folder} is not a Shoal store: it names no format", subject=str(folder))
    if found != FORMAT:
        shown = found.decode("ascii", "replace")
        raise Conflict(
            f"store {folder} has format {shown}; this version reads format {FORMAT.decode()}", subject="format"
        )


def check_table_forms(found: bytes | None, folder: Path) -> None:
    """Checks the forms of tables that a store names. Raises Conflict for another form, Corrupt for none."""
    if found is None:
        raise Corrupt(f"store {folder} names no forms of its tables", subject=str(folder))
    if found != TABLE_FORMS_VALUE:
        shown, known = found.decode("ascii", "replace"), TABLE_FORMS_VALUE.decode()
        raise Conflict(f"store {folder} has tables of forms {shown}; this version reads {known}", subject="table forms")


@contextmanager
def errors_translated(folder: Path) -> Iterator[None]:
    """Translates LMDB's errors, and the system's, to typed ones."""
    try:
        yield
    except lmdb.MapFullError:
        raise ResourceExhausted(
            f"store {folder} is full: its limit is {STORE_BYTES_MAX} bytes. Add slices, or drop what is not needed",
            subject="store bytes",
            limit=STORE_BYTES_MAX,
        ) from None
    except lmdb.Error as error:
        raise _typed(error, folder) from error
    except OSError as error:
        raise _typed(error, folder) from error


def _typed(error: Exception, folder: Path) -> ShoalError:
    text = f"store {folder}: {error}"
    if "No space left" in text or "quota" in text:
        return ResourceExhausted(text, subject="disk bytes")
    return Corrupt(text, subject=str(folder / DATA_FILE))
