"""Names the two folders in a slice node's folder that hold its data, and says whether a folder has some.

The node asks, commands that read its files, and local clusters, which import no server. What is in the two folders is
the slice node's (its STORAGE.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shoal_contract.errors import Conflict

STORE_FOLDER: Final = "store"
JOURNAL_FOLDER: Final = "journal"


def has_data(folder: Path) -> bool:
    """Returns whether a folder has data of a slice node: a store or a journal. One of the two may be lost."""
    return any((folder / name).is_dir() for name in (STORE_FOLDER, JOURNAL_FOLDER))


def node_in(root: Path) -> Path | None:
    """Returns the data folder of a slice node that `root` is, or the first that lies directly in it; None if there is
    none."""
    return next((folder for folder in (root, *sorted(root.glob("*/"))) if _is_node(folder)), None)


def check_not_data(archive: Path) -> None:
    """Raises Conflict if the folder of an archive is a slice node's data folder, lies in its journal or store, or has
    such folders in it: its segments would be among the data, and it would not be read."""
    at = archive.resolve()
    around = (place.parent for place in (at, *at.parents) if place.name in (STORE_FOLDER, JOURNAL_FOLDER))
    node = node_in(archive) or next(filter(_is_node, around), None)
    if node is not None:
        raise Conflict(
            f"--archive {archive} is not for an archive: {node} is a slice node's data folder; choose another one",
            subject=str(archive),
        )


def _is_node(folder: Path) -> bool:
    """Returns whether a folder has both: a slice, of which an archive has a folder, may have the name of one."""
    return (folder / STORE_FOLDER).is_dir() and (folder / JOURNAL_FOLDER).is_dir()
