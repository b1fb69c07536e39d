"""Stores of other versions, as far as a version that does not know them can tell: their tables and what they name."""

from __future__ import annotations

from pathlib import Path

import lmdb

from shoal_slice_node.storage.lmdb_layout import FORMAT_ROW, STORE


def store_of_format(folder: Path, store_format: bytes | None) -> Path:
    """Makes a store that lacks tables of today's, as one of format 4 does. None: it is older than the row `format`."""
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), max_dbs=32, map_size=1 << 20) as environment:
        tables = {name: environment.open_db(name.encode()) for name in (STORE, "key", "queue", "was_once")}
        with environment.begin(write=True) as transaction:
            transaction.put(b"lsn", (7).to_bytes(8, "big"), db=tables[STORE])
            transaction.put(b"k", b"row", db=tables["key"])
            if store_format is not None:
                transaction.put(FORMAT_ROW, store_format, db=tables[STORE])
    return folder
