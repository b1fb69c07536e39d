"""The README's commands work as they stand, in its order: each of them, or a reason why another test has it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

ROOT = Path(__file__).parents[2]
WAIT_S = 300
PORTS = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
"""The only thing that is changed: others on this machine may hold Shoal's ports."""
ELSEWHERE = {
    "shoal --help": "test_cli.py",
    "shoal up --admin 127.0.0.1:7402": "ports are fixed; tests/ops/http has the gateway",
    "shoal pipeline": "the jobs' common name, where extras are listed",
    "shoal bench": "the benches' common name, where extras are listed",
    "shoal bench NAME": "a word to be replaced; tests/loadtest has the benches",
    "shoal top": "runs until Ctrl-C; test_cli_admin.py",
}
ENDLESS = {"shoal tail anna": "hello"}
"""Commands that run until Ctrl-C, and the word to wait for."""


def commands() -> list[str]:
    """Every `shoal ...` that stands in backticks, in order; lines that start the cluster left out."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"`(shoal [^`]+)`", text)
    return [one for one in dict.fromkeys(found) if one not in ELSEWHERE]


@dataclass
class Place:
    """A folder with a cluster's data, where a user would be."""

    folder: Path
    process: asyncio.subprocess.Process
    at: str

    async def run(self, command: str) -> tuple[int, str]:
        """Exit code and output. `shoal` is this checkout's; SHOAL_REDIRECTOR says where the cluster is."""
        process = await start(self.folder, command.split()[1:], SHOAL_REDIRECTOR=self.at)
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            if command in ENDLESS:
                line = (await process.stdout.readline()).decode()
                process.send_signal(signal.SIGINT)
                await process.wait()
                return 0 if ENDLESS[command] in line else 1, line
            out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(WAIT_S):
            await self.process.communicate()


async def start(folder: Path, arguments: list[str], **environment: str) -> asyncio.subprocess.Process:
    light = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # a short job need not be compiled for long
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal_ops", *arguments),
        cwd=folder,
        env={**os.environ, **light, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """With the cluster that README's `shoal up` starts, and the file that it loads."""
    table = pa.table({"queue": ["anna", "ben", "carl"], "key": ["green", "green", "blue"]})
    parquet.write_table(table, tmp_path / "members.parquet")
    up = next(command for command in commands() if command.startswith("shoal up --archive"))
    process = await start(tmp_path, [*up.split()[1:], *PORTS])
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        line = ""
        while "clients connect to" not in line:
            line = (await process.stdout.readline()).decode()
            assert line, "shoal up ended"
    found = Place(tmp_path, process, line.split()[-1])
    yield found
    await found.stop()


@pytest.mark.long
@pytest.mark.timeout(2 * WAIT_S)
async def test_every_command_of_the_readme_works_as_it_stands(place: Place) -> None:
    running = [command for command in commands() if not command.startswith("shoal up")]
    after = [command for command in running if command.startswith(("shoal check", "shoal pipeline census"))]
    assert len(running) >= 10 and len(after) == 2
    for command in running:
        if command not in after:
            code, out = await place.run(command)
            assert code == 0, (command, out)
    assert {row["queue"] for row in parquet.read_table(place.folder / "members-now").to_pylist()} >= {b"ben", b"carl"}
    await place.stop()
    for command in after:
        code, out = await place.run(command)
        assert code == 0, (command, out)


def test_a_command_that_another_test_has_still_stands_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [command for command in ELSEWHERE if f"`{command}`" not in text] == []
