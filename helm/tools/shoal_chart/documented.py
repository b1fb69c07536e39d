"""Reads the values, and what values.yaml says about each: the comment right above it. Belongs here: reading them and
making their table.

A value is a leaf of values.schema.json. What lies below a value of free form (resources, labels) is not a value of
ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from shoal_chart.chart import CHART

BEGIN, END = "<!-- values: made by `make chart` from values.yaml -->", "<!-- end of values -->"


@dataclass(frozen=True)
class Value:
    """Describes one value. `name`: as --set takes it. `default`: as JSON. `text`: its comment in one line; empty if it
    has none."""

    name: str
    default: str
    text: str


def schema_values() -> list[str]:
    """Returns the dotted names that the schema allows."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    def below(node: dict[str, Any], name: str) -> Iterator[str]:
        for key, child in node.get("properties", {}).items():
            yield from below(child, f"{name}.{key}" if name else key)
        if "properties" not in node:
            yield name

    return [name for name in below(schema, "") if name != "global"]


def documented_values() -> list[Value]:
    """Returns the values with their comments, in the order of values.yaml."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    names, lines = set(schema_values()), text.splitlines()
    defaults = yaml.safe_load(text)

    def below(node: yaml.MappingNode, name: str, held: Any) -> Iterator[Value]:
        for key, child in node.value:
            full, value = f"{name}.{key.value}" if name else key.value, held[key.value]
            if full not in names and isinstance(child, yaml.MappingNode):
                yield from below(child, full, value)
            else:
                yield Value(full, json.dumps(value), _comment_above(lines, key.start_mark.line))

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    return list(below(root, "", defaults))


def table() -> str:
    """Returns the table as Markdown, between its marks."""
    rows = [f"| `{one.name}` | `{one.default}` | {one.text} |" for one in documented_values()]
    return "\n".join([BEGIN, "| value | default | meaning |", "|---|---|---|", *rows, END])


def with_table(document: str) -> str:
    """Returns `document` with a new table. Raises ValueError without marks."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the document has no marks for the table of values")
    return f"{before}{table()}{after}"


def _comment_above(lines: list[str], line: int) -> str:
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(one.strip().lstrip("# ") for one in lines[first:line])
