"""What a stopped store holds, table by table, for operators: pure data. The command line is made elsewhere.

Opens read-only and beside a running node too (another process's store; LMDB allows one environment per process).
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
    errors_translated,
    open_environment,
    open_table,
)


@dataclass(frozen=True)
class TableSummary:
    """`rows`: rows, members or parts of log rows. `bytes`: of the table's pages."""

    name: str
    rows: int
    pages: int
    bytes: int
    depth: int


@dataclass(frozen=True)
class StoreSummary:
    """`format` is empty if the store names none. `used_bytes`: up to the last page in use; free pages among them."""

    format: str
    checkpoint_lsn: int
    page_bytes: int
    used_bytes: int
    file_bytes: int
    tables: tuple[TableSummary, ...]


def inspect_store(folder: Path) -> StoreSummary:
    """Raises Corrupt if there is no store in `folder` that LMDB can read."""
    environment = open_environment(folder, readonly=True)
    try:
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
