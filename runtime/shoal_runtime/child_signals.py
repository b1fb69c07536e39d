"""Sends signals to child processes that asyncio started, without taking their exit status.

`asyncio.subprocess.Process.kill` polls the child first. Where the child has just ended, that takes the exit status away
from asyncio's own waiting thread, which then reports the code 255 and "Unknown child process".
"""

from __future__ import annotations

import os
from asyncio.subprocess import Process
from contextlib import suppress


def send_signal(process: Process, number: int) -> None:
    """Sends the signal, unless the process is known to have ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
