"""Holds a stopped node's data folder, so that no node starts on it meanwhile."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal_contract.data_folder import STORE_FOLDER
from shoal_contract.errors import Conflict, Corrupt
from shoal_slice_node.storage.data_folder import OWNER_FILE
from shoal_slice_node.storage.lmdb_layout import DATA_FILE


@contextmanager
def stopped(path: Path) -> Iterator[Path]:
    """Locks and yields the store's folder in the node's folder `path`. A copy without a lock file was never started, so
    it needs no lock.

    Raises Corrupt if there is no store, Conflict if a node runs on it.
    """
    folder = path / STORE_FOLDER
    if not (folder / DATA_FILE).is_file():
        raise Corrupt(f"{path} is no slice node's data: it has no {STORE_FOLDER}/{DATA_FILE}", subject=str(path))
    lock = folder / OWNER_FILE
    if not lock.is_file():
        yield folder
        return
    with lock.open("rb") as owner:
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = owner.read().decode("ascii", "replace").strip()
            raise Conflict(f"{folder} is in use by process {pid}", subject=str(path)) from None
        yield folder
