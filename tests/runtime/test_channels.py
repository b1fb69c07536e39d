"""All channels to servers are opened at one place, which knows how they are encrypted."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "contract", "ops", "pipeline", "redirector", "runtime", "slice_node")


def test_channels_are_opened_by_channels_py_alone() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    opening = [path for path in files if re.search(r"secure_channel\(", path.read_text(encoding="utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in opening] == ["runtime/shoal_runtime/channels.py"]
