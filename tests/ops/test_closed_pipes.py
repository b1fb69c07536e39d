"""A command whose reader has gone (`shoal status | head -c 1`) ends with one code, and says nothing."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

import shoal as client
from shoal_ops import exits
from tests.repository import with_tests

from .command_line import WAIT_S, into_closed_pipe

ALONE = [("--help",), ("--version",), ("publish", "--help"), ("pipeline", "--help"), ("bench", "--help")]
ASKING = [
    *(("status",), ("status", "--json"), ("locate", "room"), ("top", "--once", "--interval-s", "0.2")),
    *(("describe", "cli-pipe"), ("describe", "cli-pipe", "--json"), ("describe", "cli pipe", "--key")),
    *(("queues",), ("keys", "--json"), ("members", "cli pipe"), ("bindings", "cli-pipe")),
    *(("peek", "cli-pipe"), ("tail", "cli-pipe"), ("pull", "cli-pipe", "--lease-ms", "1"), ("publish", "none", "x")),
    *(("watch", "members", "cli pipe"), ("declare", "cli-pipe", "--json")),
]


@pytest.mark.parametrize("arguments", ALONE, ids=" ".join)
async def test_help_without_a_reader_ends_as_any_command(arguments: tuple[str, ...]) -> None:
    assert await into_closed_pipe(*arguments) == (exits.READER_GONE, "")


async def test_every_command_without_a_reader_ends_with_the_same_code_and_no_word(
    real_redirector: str,
) -> None:
    async with client.connect(real_redirector) as broker:
        await broker.declare("cli-pipe")
        await broker.bind("cli-pipe", "cli pipe")
        await broker.publish("cli pipe", b"1")
        found = {" ".join(one): await into_closed_pipe(*one, at=real_redirector) for one in ASKING}
        assert found == dict.fromkeys(found, (exits.READER_GONE, ""))
        assert (await broker.describe("cli-pipe")).messages == 1, "what could not be printed is not acked"


async def test_errors_without_a_reader_end_with_the_same_code() -> None:
    assert await into_closed_pipe("queues", "--limit", "0", errors_too=True) == (exits.READER_GONE, "")
    assert await into_closed_pipe("check", "/nowhere", errors_too=True) == (exits.READER_GONE, "")


async def test_an_error_comes_before_the_reader_of_a_result_that_there_is_not() -> None:
    code, error = await into_closed_pipe("check", "/nowhere")
    assert code == exits.BAD_CALL and error.startswith("shoal: ")


async def test_a_full_disk_is_told_and_is_no_gone_reader() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal_ops", "--help",
            env={"PATH": os.environ["PATH"], **with_tests()}, stdout=full, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    finally:
        os.close(full)
    async with asyncio.timeout(WAIT_S):
        _, error = await process.communicate()
    assert (process.returncode, error.decode()) == (exits.BAD_CALL, "shoal: No space left on device\n")
