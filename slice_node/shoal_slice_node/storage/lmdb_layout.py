"""Defines the checkpoint's form: one LMDB environment, with one named database per table.

    rows tables       key -> value
    binding, ended    group -> members of 8 bytes        DUPSORT, DUPFIXED
    log               key id (8) | first offset (8, big-endian) | part (2, big-endian) -> up to LOG_PART_BYTES_MAX bytes
    store             b"format" -> FORMAT     b"lsn" -> checkpoint LSN (8, big-endian)
                      b"table_forms" -> the forms of TABLE_FORMS, as "TABLE=FORM ..."
                      b"identity" -> whose data it is (shoal_contract.data_identity); absent: not said

A log row is its parts 0, 1, ... joined. LMDB keeps a value above about 2 KB on pages of its own, and needs long to find
several consecutive free pages. A part fits one page, so it needs no such search.

Belongs here: names, how an environment is opened, what foreign errors mean. Not here: reading (lmdb_tables), writing
(checkpoint_writer).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Any, Final

import lmdb

from shoal_contract.errors import Conflict, Corrupt, ResourceExhausted, ShoalError
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, LOG_TABLE, ROW_TABLES
from shoal_slice_node.storage.disk_errors import FULL
from shoal_slice_node.storage.limits import STORE_BYTES_MAX, STORE_READERS_MAX
from shoal_slice_node.storage.mapped_memory import LMDB_FILE, fits_memory

FORMAT: Final = b"11"
"""Another placing of keys (shoal_contract.partition_hash) is another format, too: rows of keys begin with the
partition, so a key that is placed elsewhere would not be found."""
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
    """Returns the format that a store names; None: the store is empty, as after a kill while it was made. Looks at no
    table but STORE where that names a format: other versions have other tables. Raises Conflict, Corrupt for a store
    that is not empty and names none."""
    found, has_lsn = _named_format(environment, transaction)
    if found is None and (has_lsn or _has_rows(environment, transaction)):
        check_format(None, folder, has_lsn)
    return found


def check_version(environment: Any, folder: Path) -> None:
    """Checks, before any other table is looked for, that this version reads the store. Raises Conflict, Corrupt."""
    with errors_translated(folder), environment.begin() as transaction:
        found, has_lsn = _named_format(environment, transaction)
    check_format(found, folder, has_lsn)


def _named_format(environment: Any, transaction: Any) -> tuple[bytes | None, bool]:
    """Returns the format that a store names, and whether it names an LSN, as stores of every version do."""
    try:
        store = open_table(environment, STORE, create=False, transaction=transaction)
    except lmdb.NotFoundError:
        return None, False
    return transaction.get(FORMAT_ROW, db=store), transaction.get(LSN_ROW, db=store) is not None


def _has_rows(environment: Any, transaction: Any) -> bool:
    """Returns whether any of our tables has a row, or there is a table that is not ours."""
    entries = environment.stat()["entries"]
    for table in TABLES:
        with suppress(lmdb.NotFoundError):
            database = open_table(environment, table, create=False, transaction=transaction)
            entries += transaction.stat(database)["entries"] - 1
    return bool(entries)


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


def check_format(found: bytes | None, folder: Path, has_lsn: bool = False) -> None:
    """Checks the format that a store names. `has_lsn`: it names an LSN. Raises Conflict for another format, and for
    none in a store with an LSN; Corrupt for none in what has not even that."""
    if found == FORMAT:
        return
    if found is None and not has_lsn:
        raise Corrupt(f"{folder} is not a Shoal store: it names no format", subject=str(folder))
    says = "names no format, as those of the oldest versions" if found is None else f"has format {_shown(found)}"
    raise Conflict(
        f"store {folder} {says}; this version reads format {FORMAT.decode()}. Another version of Shoal made it, and"
        " nothing is damaged: use that version",
        subject="format",
    )


def _shown(name: bytes) -> str:
    return name.decode("ascii", "replace")


def check_table_forms(found: bytes | None, folder: Path) -> None:
    """Checks the forms of tables that a store names. Raises Conflict for another form, Corrupt for none."""
    if found is None:
        raise Corrupt(f"store {folder} names no forms of its tables", subject=str(folder))
    if found != TABLE_FORMS_VALUE:
        known = TABLE_FORMS_VALUE.decode()
        raise Conflict(
            f"store {folder} has tables of forms {_shown(found)}; this version reads {known}. Another version of Shoal"
            " made it, and nothing is damaged: use that version",
            subject="format",
        )


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
    except (lmdb.Error, OSError) as error:
        raise _typed(error, folder) from error


def errno_of(error: lmdb.Error | OSError) -> int:
    """Returns the system's number of an error; another number or 0 where LMDB names one of its own."""
    return (error.errno or 0) if isinstance(error, OSError) else int(getattr(error, "code", 0))


def _typed(error: lmdb.Error | OSError, folder: Path) -> ShoalError:
    text = f"store {folder}: {error}"
    if errno_of(error) in FULL:
        return ResourceExhausted(text, subject="disk bytes")
    return Corrupt(text, subject=str(folder / DATA_FILE), value=max(0, errno_of(error)))
