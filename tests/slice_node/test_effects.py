"""What a record did reaches those that must hear of it: each kind of effect has a reader on the leader."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from inspect import isgetsetdescriptor, ismemberdescriptor
from pathlib import Path

import pytest

from shoal_slice_node.core.apply.effects import Effects
from tests.repository import parsed

SOURCES = Path(__file__).parents[2] / "slice_node" / "shoal_slice_node"
OF_FOLLOWERS = SOURCES / "core" / "node" / "replica.py"
READ_AS = {"forgotten_messages": "added_messages"}
"""Fields that others read by a property of Effects."""
WRITES = {"add", "append", "extend", "update"}


def read_in(text: str) -> set[str]:
    """The fields of effects that a source reads, and does not only write."""
    tree = parsed(text)
    written = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and (node.attr in WRITES or not isinstance(node.ctx, ast.Load))
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in written
        and ast.unparse(node.value).rpartition(".")[2] == "effects"
    }


def without_reader(slots: Iterable[str], texts: Iterable[str]) -> set[str]:
    return set(slots).difference(*map(read_in, texts))


def leaders_sources() -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py") if path != OF_FOLLOWERS]
    return [text for text in texts if "effects" in text]


def effects() -> list[str]:
    """The fields of Effects, plain or compiled."""
    fields = [name for name, one in vars(Effects).items() if ismemberdescriptor(one) or isgetsetdescriptor(one)]
    assert "events" in fields
    return [READ_AS.get(field, field) for field in fields]


def test_each_effect_has_a_reader() -> None:
    unread = without_reader(effects(), leaders_sources())
    assert not unread, f"nothing hears of these effects (Node._on_effects hands them out): {sorted(unread)}"


@pytest.mark.parametrize(
    "text",
    ["state.effects.new.append(1)", "effects.new = True", "effects.new.count += 1", "self.new"],
)
def test_what_only_writes_an_effect_is_no_reader(text: str) -> None:
    assert without_reader(["new"], [text]) == {"new"}


def test_a_reader_is_found() -> None:
    assert not without_reader(["new", "newer"], ["if effects.new: self.note(state.effects.newer)"])
