"""docs/developers/reliability.md names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.repository import parsed

TESTS = Path(__file__).parent
ROOT = TESTS.parent
CITED = re.compile(r"([a-z_/]+\.py)?::(test_\w+)|([a-z_]+(?:/[a-z_]+)*/test_[a-z_]+\.py)")


def missing(text: str) -> list[str]:
    """Tests that a text cites and that are not there: `file.py::test_name`, or `::test_name` of the file before it."""
    found, names, file = [], set[str](), ""
    for cited, name, alone in CITED.findall(text):
        if alone or cited:
            file = alone or cited
            path = (ROOT if (ROOT / file).is_file() else TESTS) / file
            nodes = ast.walk(parsed(path.read_text(encoding="utf-8"))) if path.is_file() else ()
            names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            if not path.is_file():
                found.append(file)
        if name and name not in names:
            found.append(f"{file}::{name}")
    return found


def test_every_cited_test_is_there() -> None:
    text = (ROOT / "docs" / "developers" / "reliability.md").read_text(encoding="utf-8")
    assert text.count("::test_") > 200
    assert missing(text) == []


def test_a_test_that_is_gone_is_found() -> None:
    text = "test_citations.py::test_every_cited_test_is_there, ::test_gone; slice_node/test_gone.py"
    assert missing(text) == ["test_citations.py::test_gone", "slice_node/test_gone.py"]
