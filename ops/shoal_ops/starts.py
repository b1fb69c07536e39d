"""Parses where a bind starts, in the words of the command line: now, earliest, last=N, ago=SECONDS, offset=N."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import typer

from shoal_ops.arguments import bad_argument

if TYPE_CHECKING:
    import shoal

_NUMBERED = re.compile(r"(last|offset|ago)=(\d{1,19})")
_EXPECTED = "now, earliest, last=N, ago=SECONDS or offset=N"


def checked_start(text: str) -> str:
    """Returns `text`. Raises typer's BadParameter (exit code 2) unless it says where to start."""
    if text not in ("now", "earliest") and _NUMBERED.fullmatch(text) is None:
        raise typer.BadParameter(f"{text} is not one of {_EXPECTED}")
    if "=" in text:
        with bad_argument():
            parse_start(text)
    return text


def parse_start(text: str) -> shoal.Start:
    """Returns the start that a checked text names. Raises OutOfRange for a number that cannot be an offset."""
    import shoal

    if text in ("now", "earliest"):
        return shoal.EARLIEST if text == "earliest" else shoal.NOW
    word, _, number = text.partition("=")
    try:
        return {"last": shoal.Last, "ago": shoal.Ago, "offset": shoal.Offset}[word](int(number))
    except shoal.OutOfRange as error:
        raise shoal.OutOfRange(f"--start {text}: {error}", subject="start", limit=error.limit) from None
