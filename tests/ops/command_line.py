"""`shoal` as a user calls it: a process of its own, with the cluster in its environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.repository import with_tests

WAIT_S = 60


async def shoal(*arguments: str, at: str = "127.0.0.1:1", **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", *arguments,
        env={"SHOAL_REDIRECTOR": at, "PATH": os.environ["PATH"], **with_tests(), **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        out, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(errors="backslashreplace"), error.decode()


async def shoal_json(*arguments: str, at: str) -> dict[str, object]:
    """What a command that must work says with --json: one object."""
    code, out, error = await shoal(*arguments, "--json", at=at)
    assert (code, error) == (0, "")
    found: dict[str, object] = json.loads(out)
    return found


def pipe_without_reader() -> int:
    ours, its = os.pipe()
    os.close(ours)
    return its


async def into_closed_pipe(*arguments: str, at: str = "127.0.0.1:1", errors_too: bool = False) -> tuple[int, str]:
    """Exit code, stderr: "" with `errors_too`, where stderr goes into the closed pipe, too."""
    out = pipe_without_reader()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal_ops", *arguments,
            env={"SHOAL_REDIRECTOR": at, "PATH": os.environ["PATH"], **with_tests()},
            stdout=out, stderr=out if errors_too else asyncio.subprocess.PIPE,
        )  # fmt: skip
    finally:
        os.close(out)
    async with asyncio.timeout(WAIT_S):
        _, error = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (error or b"").decode()


async def check_bad_argument(folder: Path, arguments: Sequence[str], complaint: str) -> None:
    """The command ends with 2 and this complaint, and makes nothing in the folder."""
    where = ("--data", str(folder / "data")) if arguments[0] == "up" else ()
    code, out, error = await shoal(*arguments, *where, COLUMNS="300")
    assert (code, out) == (2, "")
    assert complaint in " ".join(error.split())
    assert not (folder / "data").exists()


@asynccontextmanager
async def ended_at_last(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """Kills the process at the end, if it still runs, and waits for it."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
