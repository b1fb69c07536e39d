"""`shoal demo` as a user calls it, on the beginnings of the real logs; and `shoal replay` of one on a cluster."""

from __future__ import annotations

import json
from pathlib import Path

from shoal_local.cluster import LocalCluster
from shoal_ops import exits
from shoal_ops.commands.demo import CHANNEL

from .command_line import shoal, shoal_json


async def test_the_demo_loses_a_node_and_finds_every_message(beginnings: Path) -> None:
    code, out, error = await shoal("demo", "--data", str(beginnings), "--slices", "2", "--json")
    report = json.loads(out)
    assert (code, report["mismatches"], report["killed"]) == (0, 0, ["s01"]), error
    assert report["deliveries"] > 0


async def test_a_demo_without_its_logs_says_where_they_are(tmp_path: Path) -> None:
    """An installed package has none of them."""
    code, out, error = await shoal("demo", "--data", str(tmp_path))
    assert (code, out) == (exits.BAD_CALL, "")
    assert "come with the repository, not with the package" in error and error.count("\n") == 1


async def test_a_replay_is_compared_and_told_as_json(beginnings: Path, tmp_path: Path) -> None:
    async with LocalCluster(tmp_path / "data", slices=1) as cluster:
        report = await shoal_json("replay", str(beginnings / CHANNEL), at=cluster.redirector)
    assert report["mismatches"] == 0 and report["messages"]
