"""A long command whose reader goes while it runs: clusters end in order, a gateway serves on without its log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from shoal_local.ports import holder_of
from shoal_local.record import ETCD, read_record
from shoal_ops import exits
from tests.repository import with_tests

from .command_line import WAIT_S, ended_at_last, into_closed_pipe

ANY = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
TOKEN = "0123456789abcdef0123"


class Running:
    """A command whose output goes into a pipe of ours."""

    def __init__(self, process: asyncio.subprocess.Process, reading: int) -> None:
        self.process = process
        self._reading = reading
        self.read = b""

    async def until(self, part: bytes) -> None:
        """Reads until it has read `part`."""
        async with asyncio.timeout(WAIT_S):
            while part not in self.read:
                more = await asyncio.to_thread(os.read, self._reading, 1000)
                assert more, f"it ended: {self.read!r}"
                self.read += more

    def go(self) -> None:
        """Closes the pipe, as `head` does."""
        os.close(self._reading)

    async def ended(self) -> tuple[int, str]:
        """Exit code, stderr."""
        async with asyncio.timeout(WAIT_S):
            _, error = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, (error or b"").decode()


@asynccontextmanager
async def running(*arguments: str, errors_too: bool = False, **environment: str) -> AsyncIterator[Running]:
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", *arguments,
        env={"PATH": os.environ["PATH"], **with_tests(), **environment}, stdin=asyncio.subprocess.DEVNULL,
        stdout=writing, stderr=writing if errors_too else asyncio.subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    async with ended_at_last(process):
        yield Running(process, reading)


async def test_a_cluster_whose_reader_has_gone_ends_in_order_once_it_has_something_to_say(tmp_path: Path) -> None:
    """It went on without its supervisor: the node that ended was never started again, and nothing said so."""
    data = tmp_path / "data"
    async with running("up", "--data", str(data), "--slices", "2", *ANY) as command:
        await command.until(b"Ctrl-C stops it")
        record = read_record(data)
        redirector = int(command.read.partition(b"clients connect to 127.0.0.1:")[2].split()[0])
        holders = [holder_of(port) for port in (record.ports[ETCD], record.ports["s02"], redirector)]
        assert all(holders)
        command.go()
        node = holder_of(record.ports["s01"])
        assert node is not None
        os.kill(node, signal.SIGKILL)
        assert await command.ended() == (exits.READER_GONE, "")
    assert not [holder for holder in holders if holder and pid_is_there(holder)]
    said = (data / "log" / "up.log").read_text()
    assert "stopping: nodes write their checkpoints" in said.partition("s01 ended by signal 9")[2]


@pytest.mark.parametrize("errors_too", [False, True])
async def test_a_demo_whose_reader_has_gone_ends_and_leaves_nothing(
    errors_too: bool,
    beginnings: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "made").mkdir()
    demo = ("demo", "--data", str(beginnings), "--slices", "1")
    async with running(*demo, errors_too=errors_too, TMPDIR=str(tmp_path / "made")) as command:
        if errors_too:
            await command.until(b"real events")
        command.go()
        code, error = await command.ended()
    assert code == exits.READER_GONE
    assert error == "" if errors_too else error.endswith("from its journal\n")
    assert not list((tmp_path / "made").iterdir())


async def test_a_gateway_whose_log_has_no_reader_serves_on(
    real_redirector: str,
) -> None:
    """A wrong token was not answered, and a bad request ended it."""
    listen = ("--listen", "127.0.0.1:0", "--json", "--at", real_redirector)
    async with running("admin", *listen, errors_too=True, SHOAL_ADMIN_TOKEN=TOKEN) as command:
        await command.until(b"}\n")
        command.go()
        at = json.loads(command.read)["http"]
        async with httpx.AsyncClient(base_url=f"http://{at}", timeout=WAIT_S) as http:
            for _ in range(3):
                assert (await http.get("/v1/cluster", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200
                assert (await http.get("/v1/cluster", headers={"Authorization": "Bearer wrong"})).status_code == 401
                assert (await answer_to(b"GARBAGE\r\n\r\n", at)).startswith(b"HTTP/1.1 400 ")
        command.process.send_signal(signal.SIGTERM)
        await command.ended()


def pid_is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def answer_to(request: bytes, at: str) -> bytes:
    host, _, port = at.rpartition(":")
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_a_gateway_that_cannot_say_where_it_is_ends(
    real_redirector: str,
) -> None:
    code, error = await into_closed_pipe("admin", "--listen", "127.0.0.1:0", at=real_redirector)
    assert (code, error) == (exits.READER_GONE, "")


@pytest.mark.parametrize(
    "command", ["shoal_ops pipeline --help", "shoal_pipeline --help", "shoal_loadtest --help", "shoal_ops --version"]
)
async def test_a_command_whose_output_is_closed_works(command: str) -> None:
    """As a daemon's is; the process that a command starts has none either."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f'"{sys.executable}" -m {command} >&-', env={"PATH": os.environ["PATH"], **with_tests()},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        _, error = await process.communicate()
    assert (process.returncode, error) == (0, b"")


@pytest.mark.parametrize("command", ["--help", "check /nowhere"])
async def test_a_full_disk_for_errors_too_is_no_finding(command: str) -> None:
    """1 would say that a check found something."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f'"{sys.executable}" -m shoal_ops {command} >/dev/full 2>&1',
        env={"PATH": os.environ["PATH"], **with_tests()},
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        assert await process.wait() == exits.BAD_CALL
