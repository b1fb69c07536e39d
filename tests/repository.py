"""The repository that the tests look at: its components, its make targets."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPONENTS = ("contract", "runtime", "client", "redirector", "slice_node", "ops", "loadtest", "pipeline")


def recipe(target: str) -> tuple[list[str], str]:
    """A make target's prerequisites and commands."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:([^#\n]*)[^\n]*\n((?:\t[^\n]*\n)*)", text, re.MULTILINE)
    assert found, target
    return found[1].split(), found[2]
