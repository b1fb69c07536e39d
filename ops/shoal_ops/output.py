"""Shows results: a table for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from shoal_contract.names import Name, printable, show
from shoal_contract.names import text as text_of

PIPE_COLUMNS = 400
"""The width where there is no terminal, so that rows are not folded."""


def say_json(value: object) -> None:
    """Writes one line to stdout; what is not printable, or not of stdout's encoding, is escaped, as JSON allows."""
    line = json.dumps(value, ensure_ascii=False)
    sys.stdout.write((line if line.isprintable() and _can_be_shown(line) else json.dumps(value)) + "\n")
    sys.stdout.flush()


def _can_be_shown(line: str) -> bool:
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def say(text: str) -> None:
    """Writes one line to stdout; what a terminal would act on is escaped."""
    say_exactly(printable(text))


def say_exactly(text: str) -> None:
    """Writes `text` as it is, and the end of a line: for bodies that go to a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def remark(sentence: str) -> None:
    """Writes one line to stderr: beside the result, and not a part of it."""
    sys.stderr.write(printable(sentence) + "\n")


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: 1 queue, 2 queues."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def facts(pairs: Mapping[str, object]) -> None:
    """Writes one fact per line, aligned."""
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
        shown.add_row(*(printable(text(cell)) for cell in row))
    width = None if sys.stdout.isatty() else PIPE_COLUMNS
    Console(highlight=False, markup=False, width=width).print(shown, crop=False, soft_wrap=False)


def body_json(body: bytes) -> dict[str, str]:
    """Returns a body as text if it is UTF-8, else as hexadecimal digits."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_hex": body.hex()}


def body_text(body: bytes) -> str:
    """Returns a body as it may be written to stdout: as it is to a pipe or file, escaped to a terminal."""
    text = body.decode("utf-8", "backslashreplace")
    return printable(text) if sys.stdout.isatty() else text


def plain(name: Name) -> str:
    """Returns a name as data, for JSON."""
    return text_of(name) if isinstance(name, bytes) else name


def shown(name: Name) -> str:
    """Returns a name for people: what would steer a terminal is escaped."""
    return show(name if isinstance(name, bytes) else name.encode("utf-8", "backslashreplace"))


def size(count_bytes: int) -> str:
    """Returns a number of bytes in the unit that fits: 1.5 MiB."""
    value, units = float(count_bytes), ["B", "KiB", "MiB", "GiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        del units[0]
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"


def text(value: object) -> str:
    """Returns a fact as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))
