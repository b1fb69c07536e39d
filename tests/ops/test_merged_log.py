"""The log of `shoal up`: an output that fails ends the cluster in order, or loses lines; it ends no task."""

from __future__ import annotations

import errno

import pytest
from rich.console import Console

from shoal_ops.commands.cluster import MergedLog
from shoal_runtime.standard_streams import ReaderGone


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (ReaderGone(), 1),
        (OSError(errno.EIO, "terminal gone"), 1),
        (OSError(errno.ENOSPC, "disk full"), 0),
        (OSError(errno.EDQUOT, "quota"), 0),
    ],
)
def test_an_output_that_fails_ends_no_task(error: BaseException, asked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    console, stops = Console(), []

    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(console, "print", failing)
    log = MergedLog(console, lambda: stops.append(True))
    log("s01", "a line")
    assert len(stops) == asked and log.unread == bool(asked)
