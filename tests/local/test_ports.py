"""Ports of a local cluster: free ones, and the name of the process that has one that is taken."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict
from shoal_local import limits
from shoal_local.cluster import LocalCluster
from shoal_local.ports import check_free, free_port, holder_of, is_free, until_former_ended


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_a_taken_port_is_not_free_and_a_chosen_one_is(taken: int) -> None:
    assert not is_free(taken)
    port = free_port()
    assert is_free(port)
    assert port < 32_768, "not one that Linux gives to an outgoing connection, which a restart would find taken"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_the_process_that_has_a_port_is_named(taken: int) -> None:
    assert holder_of(taken) == os.getpid()
    assert holder_of(free_port()) is None
    with pytest.raises(Conflict, match=f"port {taken} is taken by process {os.getpid()}; choose another --listen"):
        check_free(f"127.0.0.1:{taken}", "--listen")
    check_free("127.0.0.1:0", "--listen")


@pytest.mark.parametrize("option", ["listen", "http", "admin"])
async def test_a_taken_port_is_found_before_anything_is_made(tmp_path: Path, taken: int, option: str) -> None:
    address = f"127.0.0.1:{taken}"
    given = {"listen": "127.0.0.1:0", "http": "127.0.0.1:0", option: address}
    with pytest.raises(Conflict, match=rf"port {taken} is taken.*; choose another --{option}"):
        await LocalCluster(tmp_path / "data", **given).start()  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


async def test_one_port_for_two_servers_is_refused(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with pytest.raises(Conflict, match=f"port {port} is given twice; choose another --http"):
        await LocalCluster(tmp_path / "data", listen=address, http=address).start()
    assert not (tmp_path / "data").exists()


async def test_a_folder_in_use_is_told_before_its_ports(tmp_path: Path) -> None:
    """`shoal up` twice: the second one shall not look for another port."""
    address = f"127.0.0.1:{free_port()}"
    async with LocalCluster(tmp_path, slices=1, listen=address):
        with pytest.raises(Conflict, match=f"in use by process {os.getpid()}"):
            await LocalCluster(tmp_path, listen=address).start()


@asynccontextmanager
async def left_behind(folder: Path) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """A process with a path in `folder` among its arguments that listens at a port, until its input ends."""
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    pipe = asyncio.subprocess.PIPE
    command = ["-c", code, "--data", str(folder / "s01")]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_servers_that_a_killed_starter_left_behind_are_waited_for(tmp_path: Path) -> None:
    async with left_behind(tmp_path / "data") as (port, process):
        waiting = asyncio.ensure_future(until_former_ended([port], tmp_path / "data"))
        await asyncio.wait([waiting], timeout=3 * limits.FORMER_LOOK_S)
        assert not waiting.done()
        process.kill()
        async with asyncio.timeout(limits.FORMER_S):
            await waiting
        assert is_free(port), "so each keeps its port"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_other_programs_that_have_a_port_are_not_waited_for(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with left_behind(tmp_path / "another") as (port, _):
        async with asyncio.timeout(limits.FORMER_S / 2):
            await until_former_ended([port, taken], tmp_path / "data")
        monkeypatch.setattr(limits, "FORMER_S", 0.01)
        await until_former_ended([port], tmp_path / "another")
        assert not is_free(port)
