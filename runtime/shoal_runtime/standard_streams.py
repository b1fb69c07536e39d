"""Gives a process the three standard streams where its starter closed them; and ends a command whose reader has gone.

The next file that is opened gets the number of a closed one. So a socket would get what is printed; and the event loop
ends the process when it closes a file of such a number.

A reader goes as `head` does, which closes the pipe once it has read enough. The libraries that print each treat the
error in their own way: one ends the process with 1, one swallows it. And tasks print, whose errors end nothing else. So
for results it is raised as what ends the process from anywhere: the event loop stops, and cancels what runs, which
cleans up. Errors and logs are no results: a server whose log is not read any more serves on.
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


_RAISING: Final = ("strict", "surrogateescape")
"""Treatments of characters that an encoding does not have: they raise UnicodeEncodeError."""


class ReaderGone(SystemExit):
    """Ends the process with READER_GONE, from any task: nothing reads the results any more."""

    def __init__(self) -> None:
        super().__init__(READER_GONE)


class ErrorsUnread(BrokenPipeError):
    """Says that nothing reads stderr any more. `logging` passes over it. It has no number: at that of a broken pipe
    click, which calls the commands, would end the process with 1."""


class _Results(io.FileIO):
    """Writes to stdout. Raises ReaderGone once where its reader has gone: what is printed while the process ends is
    lost, and ends nothing."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            lead_to_null(self.fileno())
            raise ReaderGone from None


class _Errors(io.FileIO):
    """Writes to stderr. Raises ErrorsUnread where its reader has gone."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ErrorsUnread from None


@contextmanager
def ended_with_its_reader() -> Iterator[None]:
    """Ends the process with READER_GONE, and no word, where the block writes to a pipe that nothing reads any more.
    What the block has not written yet is written at its end. Raises OSError if that cannot be done. Streams that are
    closed are opened first."""
    open_closed_ones()
    sys.stdout, sys.stderr = _watched(sys.stdout, _Results), _watched(sys.stderr, _Errors)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except (ReaderGone, ErrorsUnread):
        lead_to_null(1, 2)
        raise ReaderGone from None
    except OSError:
        lead_to_null(1)
        raise


def _watched(stream: TextIO, kind: type[io.FileIO]) -> TextIO:
    """Returns a stream of this kind to the same file, with the same encoding and buffering. What the encoding does not
    have is escaped, and ends no command: others choose the names and bodies that are printed."""
    stream.flush()
    assert isinstance(stream, io.TextIOWrapper)
    raw = kind(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors in _RAISING else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def lead_to_null(*numbers: int) -> None:
    """Leads files to the null device, so that the end of the process, which writes what is left, does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for number in numbers:
        os.dup2(null, number)
    os.close(null)


def open_closed_ones() -> None:
    """Opens the null device in the place of each standard stream that is closed. To be called first of all. Processes
    that this one starts inherit it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # It gets the lowest free number, which is this one.
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
