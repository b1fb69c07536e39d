"""The repository that the tests look at: its components, its make targets."""

from __future__ import annotations

import ast
import gc
import os
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPONENTS = ("contract", "runtime", "client", "redirector", "slice_node", "ops", "loadtest", "pipeline")


def with_tests() -> dict[str, str]:
    """The variable with which another process imports the tests' modules, and all else from where this one does: what
    its caller named stays, or the process would run other code than the tests do."""
    given = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), *([given] if given else [])])}


def recipe(target: str) -> tuple[list[str], str]:
    """A make target's prerequisites and commands."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:([^#\n]*)[^\n]*\n((?:\t[^\n]*\n)*)", text, re.MULTILINE)
    assert found, target
    return found[1].split(), found[2]


def parsed(text: str, name: str = "<unknown>") -> ast.Module:
    """The tree of a module. No garbage is collected meanwhile: that may log an exception, whose traceback has a line
    parsed, and CPython 3.11 ends a parse within a parse with SystemError."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, name)
    finally:
        if collects:
            gc.enable()
