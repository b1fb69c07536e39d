"""Tells what each slice's archive has, by what its node says of it at a clean stop, and by nothing else.

Belongs here: which line counts. Does not: what the archive has (shoal_slice_node.adapters.archiving), what operators
are told (shoal_ops).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_HAS: Final = re.compile(r"archiving: the archive .* has all records from LSN (\d+) to \d+$")
_ELSEWHERE: Final = re.compile(r"archiving: the archive .* (lacks the records up to LSN \d+,|could not be looked at: )")


class Lacks(Enum):
    """Says why a slice's archive does not have all that the slice knows of. `IN_JOURNAL`: what it lacks is in the
    slice's journal, as far as is known. `ELSEWHERE`: not there; the archive is not the one that got them, or could not
    be looked at."""

    IN_JOURNAL = 1
    ELSEWHERE = 2


@dataclass(frozen=True, slots=True)
class _Said:
    pid: int
    what: int | Lacks


class ArchiveSayings:
    """Keeps the last word of each slice's node on its archive. That of an earlier process does not count: what happened
    since is not in it."""

    def __init__(self) -> None:
        self._said: dict[str, _Said] = {}

    def hear(self, name: str, pid: int, line: str) -> None:
        """Hears a line that the process `pid` of this slice logged."""
        if found := _HAS.search(line):
            self._said[name] = _Said(pid, int(found[1]))
        elif _ELSEWHERE.search(line):
            self._said[name] = _Said(pid, Lacks.ELSEWHERE)

    def of(self, name: str, pid: int) -> int | Lacks:
        """Returns from which LSN on the archive has all records of a slice, whose last process was `pid`; else why it
        has not."""
        said = self._said.get(name)
        return said.what if said is not None and said.pid == pid else Lacks.IN_JOURNAL
