"""Reads times from the command line: points in time, and seconds. A bad one ends with exit code 2."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import typer

from shoal_contract.arguments import TTL_S, check_delay_ms, check_time
from shoal_contract.options import QueueOptions
from shoal_ops.arguments import bad_argument

_NOT_BEFORE: Final = ["--not-before"]


def checked_time(text: str | None) -> datetime | float | None:
    """Returns the time of `--not-before` as the client takes it; None for None. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        with bad_argument(_NOT_BEFORE):
            check_time("not_before", seconds)
        return seconds
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is no time: write YYYY-MM-DDT18:00+01:00, or seconds since 1970"
        raise typer.BadParameter(problem, param_hint=_NOT_BEFORE) from None
    if found.utcoffset() is None:
        problem = f"{text!r} has no time zone: add one, as in 18:00+01:00 or 17:00Z"
        raise typer.BadParameter(problem, param_hint=_NOT_BEFORE)
    with bad_argument(_NOT_BEFORE):
        check_time("not_before", found)
    return found


def checked_ttl(seconds: float | None) -> float | None:
    """Returns a time to live as it was given. Raises BadParameter."""
    if seconds is not None:
        with bad_argument():
            TTL_S.check(seconds)
    return seconds


def checked_delay(seconds: float) -> float:
    """Returns the delay of a nack as it was given. Raises BadParameter."""
    with bad_argument():
        check_delay_ms(seconds)
    return seconds


def checked_ack_timeout(milliseconds: int) -> int:
    """Returns the ack timeout of a queue as it was given. Raises BadParameter."""
    with bad_argument():
        QueueOptions(ack_timeout_ms=milliseconds).check()
    return milliseconds
