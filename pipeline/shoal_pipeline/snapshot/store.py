"""Finds the stores in a folder, and opens one to be read.

The folder is a node's (with `store` in it), or has nodes' folders in it, like a local cluster's. The slice of a store
is the name of its node's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.errors import BadCall, Conflict
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_reader import find_tail, list_segments
from shoal_slice_node.storage.lmdb_tables import LmdbBase


def find_nodes(path: Path) -> list[Path]:
    """Returns the nodes' folders. Raises BadCall if there is none."""
    if (path / STORE_FOLDER).is_dir():
        return [path]
    nodes = sorted(store.parent for store in path.glob(f"*/{STORE_FOLDER}"))
    if not nodes:
        raise BadCall(f"{path} has no slice node's data: a node's folder has a {STORE_FOLDER}", subject=str(path))
    return nodes


@contextmanager
def opened(node: Path, ignore_journal: bool) -> Iterator[Tables]:
    """Yields the tables of a node's checkpoint. Raises Corrupt; Conflict for another format, or if the journal has more
    (the node runs, or was killed) and that is not to be ignored."""
    base = LmdbBase(node / STORE_FOLDER)
    try:
        if not ignore_journal:
            _check_journal(node, base.lsn)
        yield Delta(base)
    finally:
        base.close()


def _check_journal(node: Path, lsn: int) -> None:
    files, folder = DiskFiles(), node / JOURNAL_FOLDER
    segments = list_segments(files, folder) if folder.is_dir() else []
    if not segments:
        return
    last = find_tail(files, segments, lsn).next_lsn - 1
    if last > lsn:
        raise Conflict(
            f"the journal of {node} goes to LSN {last}, its checkpoint to {lsn}: stop the node cleanly first, or read"
            " only the checkpoint with option journal=ignore",
            subject=str(node),
            limit=lsn,
            value=last,
        )
