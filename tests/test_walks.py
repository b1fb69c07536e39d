"""docs/developers/walks.md names functions that are there; the map of dispatch names every module of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.repository import parsed

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "slice_node" / "shoal_slice_node")


def functions(path: Path) -> set[str]:
    nodes = ast.walk(parsed(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(text: str) -> list[str]:
    """Steps of a text whose file or function is not there, or that nothing can check: a function beside its file."""
    found = re.findall(r"`[a-z_]+` in [a-z_/]+\.py", text)
    for file, name in re.findall(r"`([a-z_/]+\.py)::([a-z_]+)`", text):
        path = next((folder / file for folder in FOLDERS if (folder / file).is_file()), None)
        if path is None or name not in functions(path):
            found.append(f"{file}::{name}")
    return found


def test_every_step_of_a_walk_is_there() -> None:
    text = (ROOT / "docs" / "developers" / "walks.md").read_text(encoding="utf-8")
    assert text.count("::") > 30
    assert missing(text) == []


def test_a_step_that_is_gone_is_found() -> None:
    steps = (
        "`client/shoal/broker.py::publish_later`, `core/gone.py::turn`, `core/turns.py::add`, `add` in core/turns.py"
    )
    assert missing(steps) == [
        "`add` in core/turns.py",
        "client/shoal/broker.py::publish_later",
        "core/gone.py::turn",
    ]


def test_the_map_of_dispatch_has_every_module() -> None:
    folder = ROOT / "slice_node" / "shoal_slice_node" / "core" / "dispatch"
    tree = parsed((folder / "__init__.py").read_text(encoding="utf-8"))
    named = set(re.findall(r"[a-z_]+", ast.get_docstring(tree) or ""))
    assert {path.stem for path in folder.glob("[a-z]*.py")} - named == set()
