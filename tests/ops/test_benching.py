"""`shoal bench` passes arguments, results and exit codes on; on a terminal it shows that it is at work."""

from __future__ import annotations

import asyncio
import os
import pty
import sys

from .command_line import WAIT_S, shoal


async def test_results_and_exit_codes_of_the_load_test_are_passed_on() -> None:
    code, out, error = await shoal("bench", "--help")
    assert (code, error) == (0, "") and "churn" in out
    code, out, error = await shoal("bench", "nothing-like-it")
    assert (code, out) == (2, "") and "nothing-like-it" in error


async def test_on_a_terminal_the_result_is_whole_and_progress_goes_to_stderr() -> None:
    terminal, end = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", "bench", "--help", stdout=asyncio.subprocess.PIPE, stderr=end
    )
    os.close(end)
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate()
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert process.returncode == 0 and out.decode().startswith("usage:")
    assert "0:00:0" in shown, "how long it has been at work"
