"""Shows operators what a store holds, table by table, as pure data. Not here: the command line.

It opens the store read-only, also beside a running node. That node must be another process: LMDB allows one
environment per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal_slice_node.storage.lmdb_layout import (
    DATA_FILE,
    FORMAT_ROW,
    LSN_ROW,
    STORE,
    TABLES,
    check_version,
    errors_translated,
    open_environment,
    open_table,
)


@dataclass(frozen=True)
class TableSummary:
    """Describes one table. `rows`: the number of rows, members, or parts of log rows. `bytes`: of the table's pages."""

    name: str
    rows: int
    pages: int
    bytes: int
    depth: int


@dataclass(frozen=True)
class StoreSummary:
    """Describes a store. `format` is empty if the store names none. `used_bytes`: up to the last page in use, including
    free pages below it."""

    format: str
    checkpoint_lsn: int
    page_bytes: int
    used_bytes: int
    file_bytes: int
    tables: tuple[TableSummary, ...]


def inspect_store(folder: Path) -> StoreSummary:
    """Returns a summary of the store in `folder`. Raises Conflict if another version made it, Corrupt if LMDB can read
    no store there."""
    environment = open_environment(folder, readonly=True)
    try:
        check_version(environment, folder)
        with errors_translated(folder):
            databases = {name: open_table(environment, name, create=False) for name in TABLES}
            with environment.begin() as transaction:
                found = transaction.get(FORMAT_ROW, b"", databases[STORE])
                lsn = transaction.get(LSN_ROW, b"", databases[STORE])
                tables = tuple(_summary(name, transaction.stat(database)) for name, database in databases.items())
            page_bytes = environment.stat()["psize"]
            used_bytes = (environment.info()["last_pgno"] + 1) * page_bytes
    finally:
        environment.close()
    file_bytes = (folder / DATA_FILE).stat().st_size
    shown = found.decode("ascii", "replace")
    return StoreSummary(shown, int.from_bytes(lsn, "big"), page_bytes, used_bytes, file_bytes, tables)


def _summary(name: str, stat: dict[str, int]) -> TableSummary:
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return TableSummary(name, stat["entries"], pages, pages * stat["psize"], stat["depth"])
