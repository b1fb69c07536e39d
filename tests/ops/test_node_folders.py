"""Paths of nodes' folders: one that names none, or several, says which there are."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from shoal_contract.data_folder import check_not_data, has_data
from shoal_contract.errors import Conflict
from shoal_ops.commands.node_folders import nodes_below, nothing_there
from shoal_slice_node.storage.data_folder import inner_data


def test_a_clusters_folder_names_the_nodes_in_it(tmp_path: Path) -> None:
    assert str(nothing_there(tmp_path, "journal")).endswith("has no journal: a node's folder has a store and a journal")
    for name in ("s02", "s01"):
        (tmp_path / name / "journal").mkdir(parents=True)
    (tmp_path / "etcd").mkdir()
    assert str(nothing_there(tmp_path, "journal")).endswith(f"name one of them: {tmp_path}/s01, {tmp_path}/s02")


def test_all_commands_call_the_same_folders_a_nodes(tmp_path: Path) -> None:
    """Of one of the two a node may have lost all; what lies too deep has both, or it would be a part of a backup."""
    expected = []
    for store, journal in product(("none", "file", "folder"), repeat=2):
        node = tmp_path / f"{store}-{journal}"
        node.mkdir()
        for name, kind in (("store", store), ("journal", journal)):
            if kind == "file":
                (node / name).touch()
            elif kind == "folder":
                (node / name).mkdir()
        has = "folder" in (store, journal)
        assert has_data(node) is has, node.name
        expected += [node] * has
    assert nodes_below(tmp_path) == sorted(expected)
    assert inner_data(tmp_path) == tmp_path / "folder-folder"


@pytest.mark.parametrize("place", ["journal", "store/x"])
def test_an_archive_by_a_link_into_a_nodes_folder_is_refused(tmp_path: Path, place: str) -> None:
    for folder in ("store", "journal", "store/x"):
        (tmp_path / "node" / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / "node" / place)
    for archive in (tmp_path / "link", tmp_path / "link" / "more"):
        with pytest.raises(Conflict, match="is a slice node's data folder"):
            check_not_data(archive)
