"""Commands that read standard input: bounded, and ended by Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys

import pytest

from shoal_contract.limits import BODY_BYTES_MAX
from shoal_ops import exits
from shoal_ops.limits import TRANSACTION_FILE_BYTES_MAX
from tests.repository import with_tests

WAIT_S = 60
READERS = [(("publish", "room"), BODY_BYTES_MAX), (("transaction", "-"), TRANSACTION_FILE_BYTES_MAX)]


async def started(arguments: tuple[str, ...], stdin: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", *arguments, "--at", "127.0.0.1:1",
        env={"PATH": os.environ["PATH"], **with_tests()},
        stdin=stdin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "limit"), READERS)
async def test_no_more_is_read_than_may_be_sent(arguments: tuple[str, ...], limit: int) -> None:
    """A large file by mistake took the machine's memory before the limit was told."""
    endless = os.open("/dev/zero", os.O_RDONLY)
    try:
        async with asyncio.timeout(WAIT_S):
            process = await started(arguments, endless)
            _, error = await process.communicate()
    finally:
        os.close(endless)
    assert process.returncode == exits.BAD_CALL
    assert f"from standard input takes more than {limit} bytes, which is the limit" in error.decode()


@pytest.mark.parametrize("arguments", [one for one, _ in READERS])
async def test_a_command_that_waits_for_a_terminal_says_so_and_ends_with_one_interrupt(
    arguments: tuple[str, ...],
) -> None:
    ours, its = pty.openpty()
    try:
        async with asyncio.timeout(WAIT_S):
            process = await started(arguments, its)
            assert process.stderr is not None
            line = (await process.stderr.readline()).decode()
            assert line.startswith("reads ") and "end it with Ctrl-D; Ctrl-C sends nothing" in line
            process.send_signal(signal.SIGINT)
            _, error = await process.communicate()
    finally:
        os.close(ours)
        os.close(its)
    assert process.returncode == 130 and "Traceback" not in error.decode()
