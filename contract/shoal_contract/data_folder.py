"""Names the two folders in a slice node's folder that hold its data, and says whether a folder has some.

The node asks, commands that read its files, and local clusters, which import no server. What is in the two folders is
the slice node's (its STORAGE.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STORE_FOLDER: Final = "store"
JOURNAL_FOLDER: Final = "journal"


def has_data(folder: Path) -> bool:
    """Returns whether a folder has data of a slice node: a store or a journal. One of the two may be lost."""
    return any((folder / name).is_dir() for name in (STORE_FOLDER, JOURNAL_FOLDER))
