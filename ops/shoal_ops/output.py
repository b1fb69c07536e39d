"""How results are shown: a table for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from shoal_contract.names import Name, printable, show
from shoal_contract.names import text as text_of

PIPE_COLUMNS = 400
"""Where there is no terminal, rows are not folded."""


def say_json(value: object) -> None:
    """Writes one line to stdout; what is not printable is escaped, as JSON allows."""
    line = json.dumps(value, ensure_ascii=False)
    sys.stdout.write((line if line.isprintable() else json.dumps(value)) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def remark(sentence: str) -> None:
    """On stderr: beside the result, and not a part of it."""
    sys.stderr.write(sentence + "\n")


def facts(pairs: Mapping[str, object]) -> None:
    """One fact a line, aligned."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        say(f"{name:<{width}}  {text(value)}")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        shown.add_column(column, justify="right" if rows and numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(text, row))
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    Console(highlight=False, markup=False, width=width).print(shown, crop=False, soft_wrap=False)


def body_json(body: bytes) -> dict[str, str]:
    """Text if it is UTF-8, else hexadecimal digits."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_hex": body.hex()}


def plain(name: Name) -> str:
    """Returns a name as data, for JSON."""
    return text_of(name) if isinstance(name, bytes) else name


def shown(name: Name) -> str:
    """Returns a name for people: what would steer a terminal is escaped."""
    return show(name if isinstance(name, bytes) else name.encode("utf-8", "backslashreplace"))


def size(count_bytes: int) -> str:
    """In the unit that fits: 1.5 MiB."""
    value, units = float(count_bytes), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def text(value: object) -> str:
    """A fact as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))
