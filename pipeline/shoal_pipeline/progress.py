"""Writes how far a job is."""

from __future__ import annotations

import sys
from collections.abc import Callable

Say = Callable[[str], None]
"""Takes one line for the user, who waits."""


def say(line: str) -> None:
    """Writes a line to stderr: stdout is for the job's results."""
    sys.stderr.write(f"shoal pipeline: {line}\n")
    sys.stderr.flush()
