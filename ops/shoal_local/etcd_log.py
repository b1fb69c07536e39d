"""Reads why etcd ended from the end of its log: lines of JSON, or the trace of a panic.

Belongs here: what a line of etcd's log says. Does not: the file (log.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from shoal_local.log import LogFile

_NO_SPACE = "no space left on device"
_ENDS = ("fatal", "panic")


class EtcdLog(LogFile):
    """Reads the log file of an etcd."""

    def reason_in(self, lines: list[str]) -> str:
        """Returns the reason of the last line that says that etcd ends; else what the last line says; else ""."""
        if any(_NO_SPACE in line for line in lines):
            return "no space left on its disk; make room there"
        told = [_told(line) for line in lines]
        ends = [text for level, text in told if level in _ENDS]
        return (ends or [text for _, text in told] or [""])[-1]


def _told(line: str) -> tuple[str, str]:
    """Returns the level of a line, and what it says; the level "" if it is no JSON and no beginning of a panic."""
    if line.startswith("panic: "):
        return "panic", line.removeprefix("panic: ")
    try:
        said = json.loads(line)
    except ValueError:
        return "", line
    if not isinstance(said, dict):
        return "", line
    parts: Iterable[object] = (said.get("msg"), said.get("error"))
    return str(said.get("level", "")), ": ".join(str(part) for part in parts if part)
