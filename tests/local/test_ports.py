"""Ports of a local cluster: free ones, and the name of the process that has one that is taken."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict
from shoal_local.cluster import LocalCluster
from shoal_local.ports import check_free, free_port, holder_of, is_free


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
