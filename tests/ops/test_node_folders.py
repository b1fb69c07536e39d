"""Paths of nodes' folders: one that names none, or several, says which there are."""

from __future__ import annotations

from pathlib import Path

from shoal_ops.commands.node_folders import nothing_there


def test_a_clusters_folder_names_the_nodes_in_it(tmp_path: Path) -> None:
    assert str(nothing_there(tmp_path, "journal")).endswith("has no journal: a node's folder has a store and a journal")
    for name in ("s02", "s01"):
        (tmp_path / name / "journal").mkdir(parents=True)
    (tmp_path / "etcd").mkdir()
    assert str(nothing_there(tmp_path, "journal")).endswith(f"name one of them: {tmp_path}/s01, {tmp_path}/s02")
