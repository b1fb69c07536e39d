"""Reads absolute times from the command line."""

from __future__ import annotations

from datetime import datetime

import typer


def checked_time(text: str | None) -> datetime | float | None:
    """Returns a time as the client takes it; None for None. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time: write YYYY-MM-DDT18:00+01:00, or seconds since 1970") from None
    if found.utcoffset() is None:
        raise typer.BadParameter(f"{text!r} has no time zone: add one, as in 18:00+01:00 or 17:00Z")
    return found
