"""The log of `shoal up`: an output that fails ends the cluster in order, or loses lines; it ends no task."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from rich.console import Console

from shoal_ops.commands.cluster import MergedLog, told_data
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


def test_a_stop_says_what_was_removed_and_not_what_was_never_there(tmp_path: Path) -> None:
    (tmp_path / "s01" / "store").mkdir(parents=True)
    assert told_data(tmp_path, ["s01"]) == f"the data is kept in {tmp_path}", "s02 was missing from the start"
    assert told_data(tmp_path, ["s01", "s02"]) == f"the data of s02 was removed from {tmp_path}"
