"""A signal to a child that is ending leaves its exit status to asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from shoal_runtime.child_signals import send_signal

CHILDREN = 60
"""With asyncio's own kill some of so many are reported as ended with status 255."""


async def test_how_a_child_ended_is_known_though_it_was_sent_another_signal() -> None:
    for _ in range(CHILDREN):
        process = await asyncio.create_subprocess_exec("sleep", "60")
        os.kill(process.pid, signal.SIGKILL)
        wait_until_ended(process.pid)
        send_signal(process, signal.SIGTERM)
        assert await process.wait() == -signal.SIGKILL
        send_signal(process, signal.SIGTERM)


def wait_until_ended(pid: int) -> None:
    """Returns as soon as the process is a zombie or gone."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        while stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] not in "ZX":
            pass
    except (FileNotFoundError, ProcessLookupError):
        pass
