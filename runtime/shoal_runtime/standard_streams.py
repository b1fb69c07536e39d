"""Gives a process the three standard streams where its starter closed them; and ends a command whose reader has gone.

The next file that is opened gets the number of a closed one. So a socket would get what is printed; and the event loop
ends the process when it closes a file of such a number.

A reader goes as `head` does, which closes the pipe once it has read enough. The libraries that print each treat the
error in their own way: one ends the process with 1, one swallows it. So it is raised as an error that they do not know.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READER_GONE: Final = 141
"""The exit code of a command whose reader has gone: that of programs that the signal SIGPIPE ends, 128 and 13."""


class ReaderGone(Exception):
    """Says that the pipe behind a standard stream has no reader any more. Not an OSError: see above."""


class _Stream(io.FileIO):
    """Writes to a standard stream. Raises ReaderGone in place of BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGone from None


@contextmanager
def ended_with_its_reader() -> Iterator[None]:
    """Ends the process with READER_GONE, and no word, where the block writes to a pipe that nothing reads any more.
    What the block has not written yet is written at its end. Raises OSError if that cannot be done."""
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except ReaderGone:
        _give_up(1, 2)
        sys.exit(READER_GONE)
    except OSError:
        _give_up(1)
        raise


def _watched(stream: TextIO) -> TextIO:
    """Returns a stream to the same file, with the same encoding and buffering, that raises ReaderGone."""
    stream.flush()
    assert isinstance(stream, io.TextIOWrapper)
    raw = _Stream(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _give_up(*numbers: int) -> None:
    """Leads files to the null device, so that the end of the process, which writes what is left, does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def open_closed_ones() -> None:
    """Opens the null device in the place of each standard stream that is closed. To be called first of all."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number, which is this one.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
