"""`shoal demo` as a user calls it, on the beginnings of the real logs; and `shoal replay` of one on a cluster."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest

from shoal_local.cluster import LocalCluster
from shoal_ops import exits
from shoal_ops.commands.demo import CHANNEL, CHURN

from .command_line import shoal, shoal_json

LOGS = Path(__file__).parents[1] / "data"
LINES = 300


@pytest.fixture
def beginnings(tmp_path: Path) -> Path:
    """A folder of the demo's files, each cut after some lines."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in (CHANNEL, *CHURN):
        with gzip.open(LOGS / name, "rt", encoding="utf-8") as whole, gzip.open(folder / name, "wt") as cut:
            cut.writelines(islice(whole, LINES))
    return folder


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
