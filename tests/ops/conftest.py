"""The fixture of several tests of commands."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest

from shoal_ops.commands.demo import CHANNEL, CHURN

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
