"""Errors as one line: what happened, one hint that fits it, the exit code; and nothing is left changed."""

from __future__ import annotations

import logging

import pytest

from shoal_contract.errors import (
    Corrupt,
    DeadlineExceeded,
    NoSuchQueue,
    PermissionDenied,
    ResourceExhausted,
    ShoalError,
    Unavailable,
)
from shoal_ops import exits

LOG = logging.getLogger("shoal_runtime.tasks")


def told(error: BaseException, capsys: pytest.CaptureFixture[str], hints: dict[int, str] | None = None) -> str:
    """What stderr says, after its `shoal: `."""
    with pytest.raises(SystemExit), exits.told(hints):
        raise error
    line = capsys.readouterr().err
    assert line.startswith("shoal: ") and line.count("\n") == 1
    return line.removeprefix("shoal: ").rstrip("\n")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (NoSuchQueue("queue a does not exist"), exits.BAD_CALL, "queue a does not exist"),
        (FileNotFoundError(2, "No such file", "x"), exits.BAD_CALL, "x: No such file"),
        (DeadlineExceeded("too late"), exits.UNKNOWN, "too late"),
        (ResourceExhausted("full"), exits.SLOW_DOWN, "full (send less, or raise the limit, and try again)"),
        (
            ResourceExhausted("the disk of slice s01 is full: the change was not stored", subject="disk bytes"),
            exits.SLOW_DOWN,
            "the disk of slice s01 is full: the change was not stored"
            " (make room there, and try again; shoal status shows each slice's trouble)",
        ),
        (PermissionDenied("no"), exits.NO_RIGHTS, "no (ask for rights)"),
        (ShoalError("odd"), exits.BAD_CALL, "odd"),
        (
            Corrupt("bad", subject="f"),
            exits.DAMAGED,
            "bad (keep the files as they are, and run shoal check on the node's folder)",
        ),
    ],
)
def test_each_error_has_its_code_and_one_hint(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exits.code_of(error) == code
    assert told(error, capsys) == line


def test_a_command_names_the_hint_that_fits_it(capsys: pytest.CaptureFixture[str]) -> None:
    away = Unavailable("no cluster answers")
    assert told(away, capsys, {exits.UNKNOWN: exits.CLUSTER_AWAY}) == f"no cluster answers ({exits.CLUSTER_AWAY})"
    assert told(Corrupt("bad"), capsys, exits.OFFLINE) == "bad (keep the files as they are)"
    for error in (
        Unavailable("no etcd"),
        PermissionDenied("chmod 600 token"),
        ResourceExhausted("full", subject="disk bytes"),
    ):
        assert told(error, capsys, exits.SERVING) == str(error)


def test_a_slice_that_is_named_gets_the_hint_for_slices(capsys: pytest.CaptureFixture[str]) -> None:
    hints = {exits.UNKNOWN: exits.CLUSTER_AWAY}
    silent = DeadlineExceeded("slice s03 does not answer: DEADLINE_EXCEEDED")
    assert told(silent, capsys, hints) == f"{silent} ({exits.SLICE_AWAY})"


def test_an_error_of_the_system_is_a_sentence_without_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(OSError(30, "Read-only file system", "/x/owner"), capsys) == "/x/owner: Read-only file system"
    assert told(OSError(28, "No space left on device"), capsys) == "No space left on device"


def test_what_is_called_an_http_port_gets_no_hint_of_another_cause(capsys: pytest.CaptureFixture[str]) -> None:
    words = "UNAVAILABLE: h:1 answers HTTP, not gRPC: that is an HTTP port"
    assert told(Unavailable(words), capsys, {exits.UNKNOWN: exits.CLUSTER_AWAY}) == words


def test_names_in_errors_cannot_control_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(NoSuchQueue("queue \x1b[2J\nx does not exist"), capsys) == "queue \\x1b[2J\\x0ax does not exist"


@pytest.mark.parametrize("before", [True, False])
def test_the_log_of_tasks_is_as_it_was_afterwards(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "disabled", before)
    with exits.told():
        assert LOG.disabled
    assert LOG.disabled is before
    with pytest.raises(SystemExit), exits.told():
        raise NoSuchQueue("x")
    assert LOG.disabled is before
