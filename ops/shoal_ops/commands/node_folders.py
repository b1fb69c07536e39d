"""Finds the data folders of stopped nodes that a path names, and says what is wrong with a path that names none."""

from __future__ import annotations

from pathlib import Path

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER, has_data
from shoal_contract.errors import BadCall


def nodes_below(path: Path) -> list[Path]:
    """Returns the node's folder `path`, or those of all nodes in it, as in a local cluster's folder. Raises BadCall."""
    _check_folder(path)
    nodes = [path] if has_data(path) else _nodes_in(path)
    if not nodes:
        raise nothing_there(path, "slice node's data")
    return nodes


def one_node(path: Path) -> Path:
    """Returns `path`, which must be one node's folder. Raises BadCall, which names the nodes that are in it."""
    nodes = nodes_below(path)
    if nodes != [path]:
        raise BadCall(
            f"{path} is not a node's folder, but has some in it: name one of them: {', '.join(map(str, nodes))}",
            subject=str(path),
        )
    return path


def part_of_node(path: Path, name: str) -> Path:
    """Returns the folder `name` of a node's folder, or `path` where it is already that folder. Raises BadCall."""
    _check_folder(path)
    return path / name if (path / name).is_dir() else path


def nothing_there(path: Path, what: str) -> BadCall:
    nodes = _nodes_in(path)
    advice = f". It has nodes' folders in it: name one of them: {', '.join(map(str, nodes))}" if nodes else ""
    return BadCall(
        f"{path} has no {what}: a node's folder has a {STORE_FOLDER} and a {JOURNAL_FOLDER}{advice}", subject=str(path)
    )


def _check_folder(path: Path) -> None:
    if not path.exists():
        raise BadCall(f"there is no folder {path}", subject=str(path))
    if not path.is_dir():
        raise BadCall(f"{path} is not a folder", subject=str(path))


def _nodes_in(path: Path) -> list[Path]:
    return sorted(one for one in path.iterdir() if has_data(one))
