"""Appends to the log file of one process of a local cluster, and reads its last words when the process fails.

Belongs here: one file. Does not: which process writes there (child.py), terminals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

from shoal_contract.errors import Conflict
from shoal_local import limits
from shoal_local.files import open_file

_REASON: Final = re.compile(r" stops: (.*)")
"""Matches a server's last line that says why it ends (shoal_runtime.server_process)."""


class LogFile:
    """Writes a log file, which is made when it is first opened, and reads its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin = 0
        """The position in the file where the last run begins: the one that `open` was called for."""

    def open(self) -> BinaryIO:
        """Opens the file for the lines of a new run. Raises Conflict if it is a symbolic link, OSError."""
        file = os.fdopen(open_file(self.path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0)
        self._begin = os.fstat(file.fileno()).st_size
        return file

    def begin(self) -> None:
        """Notes that a new run begins: what the file has is of earlier ones."""
        self._begin = self.path.stat().st_size if self.path.is_file() else 0

    def add(self, line: str) -> None:
        """Appends a line of our own, with the time in UTC."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        with os.fdopen(open_file(self.path, os.O_WRONLY | os.O_APPEND), "ab") as file:
            file.write(f"{now}Z {line}\n".encode())

    def last_words(self) -> str:
        """Returns why the run ended, in its own words: its reason if it gave one, else its last line, or ""."""
        if not self.path.is_file():
            return ""
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._begin, size - limits.LAST_WORDS_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return self.reason_in(lines)

    def reason_in(self, lines: list[str]) -> str:
        """Returns the last reason that these lines give for the end, else the last line, else ""."""
        reasons = [found[1] for line in lines if (found := _REASON.search(line))]
        return (reasons or lines or [""])[-1]


class Appending:
    """Appends the lines of a new run to a log file. Lines that the file does not take, such as while the disk is full,
    are lost, and no error: the task that reads a process's output must go on, or the process waits for ever.

    `on_lost`: told why, once until the file takes lines again.
    """

    def __init__(self, log: LogFile, on_lost: Callable[[str], None]) -> None:
        self._log = log
        self._on_lost = on_lost
        self._file: BinaryIO | None = None
        self._losing = False
        log.begin()

    def write(self, line: bytes) -> None:
        try:
            if self._file is None:
                self._file = self._log.open()
            self._file.write(line)
        except (OSError, Conflict) as error:
            if not self._losing:
                self._on_lost(f"lines are missing from {self._log.path}: {error}")
            self._losing = True
        else:
            self._losing = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
