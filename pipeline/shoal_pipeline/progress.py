"""How a job tells how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable

Say = Callable[[str], None]
"""One line for the user, who waits."""


def say(line: str) -> None:
    """On stderr: stdout is for what was asked for."""
    sys.stderr.write(f"shoal pipeline: {line}\n")
    sys.stderr.flush()
