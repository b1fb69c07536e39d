"""Names what else is in a node's data folder besides its data (shoal_contract.data_folder), and finds a node's data
that lies too deep."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER

OWNER_FILE: Final = "owner"
"""The lock file in the store's folder. It holds the pid of the process that has the store open."""

REPAIR_FOLDER: Final = "repair"
"""Keeps files as they were before an operator's repair, in one folder for each repair."""


def inner_data(folder: Path) -> Path | None:
    """Returns a folder in `folder` that has a store and a journal: a node's data that was moved into the folder where
    it should be. None: there is none."""
    inner = folder.iterdir() if folder.is_dir() else ()
    found = (one for one in inner if (one / STORE_FOLDER).is_dir() and (one / JOURNAL_FOLDER).is_dir())
    return min(found, default=None)
