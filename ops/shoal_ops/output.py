"""How results are shown: a table for people, one JSON object for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from shoal_contract.names import Name, show

PIPE_COLUMNS = 400
"""Where there is no terminal, rows are not folded."""


def say_json(value: object) -> None:
    """One line on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def facts(pairs: Mapping[str, object]) -> None:
    """One fact a line, aligned."""
    width = max(map(len, pairs), default=0)
    for name, value in pairs.items():
        say(f"{name:<{width}}  {_number(value)}")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(isinstance(row[index], int | float) for row in rows)
        shown.add_column(column, justify="right" if rows and numeric else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(_number, row))
    console = Console(highlight=False, markup=False)
    console.print(shown, width=None if console.is_terminal else PIPE_COLUMNS, crop=False, soft_wrap=False)


def body_json(body: bytes) -> dict[str, str]:
    """Text if it is UTF-8, else hexadecimal digits."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_hex": body.hex()}


def shown(name: Name) -> str:
    return show(name) if isinstance(name, bytes) else name


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
