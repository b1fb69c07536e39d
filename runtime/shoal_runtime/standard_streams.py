"""Gives a process the three standard streams where its starter closed them.

The next file that is opened gets the number of a closed one. So a socket would get what is printed; and the event loop
ends the process when it closes a file of such a number.
"""

from __future__ import annotations

import os
import sys


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
