"""A real node whose disk, checkpoints or clock fail for a while: what it refuses, says, and does afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import httpx
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from tests.repository import ROOT, with_tests

from .core_driver import bind, declare, drop
from .faulty_node import FOLDER
from .node_process import How, NodeProcess
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 60
KEYS = [f"k{number:04}" for number in range(3_000)]


class Troubled:
    """A node and its faults."""

    def __init__(self, node: NodeProcess, faults: Path) -> None:
        self.node = node
        self._faults = faults

    def begin(self, fault: str, text: str = "") -> None:
        (self._faults / fault).write_text(text)

    def end(self, fault: str) -> None:
        (self._faults / fault).unlink()

    async def readiness(self) -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"http://{self.node.http}/readyz")).status_code


@pytest.fixture
async def troubled(tmp_path: Path) -> AsyncIterator[Troubled]:
    faults = tmp_path / "faults"
    faults.mkdir()
    environment = {FOLDER: str(faults), **with_tests()}
    how = How(("-m", "tests.slice_node.faulty_node"), environment=environment)
    node = await NodeProcess.start(tmp_path / "data", "--delta-rows", "100", "--http", "127.0.0.1:0", how=how)
    try:
        yield Troubled(node, faults)
    finally:
        await node.kill()


def test_a_node_with_faults_imports_what_the_tests_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """It imported the installed packages, though its caller named others."""
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert with_tests()["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "elsewhere"]


async def published(stub: SliceServiceAsyncStub, key: str) -> wire.PublishResponse:
    return await stub.Publish(wire.PublishRequest(key=key.encode(), chunk=Chunk(bodies=[b"x"])))


async def routed_to(stub: SliceServiceAsyncStub, key: str) -> int:
    return (await published(stub, key)).queues


async def routed_once_there_is_room(stub: SliceServiceAsyncStub, key: str) -> int | None:
    """None: the node has not noticed yet that there is room."""
    try:
        return await routed_to(stub, key)
    except grpc.aio.AioRpcError as error:
        assert isinstance(from_rpc_error(error), ResourceExhausted)
        return None


async def until(asked: Callable[[], Awaitable[int | None]], answer: int) -> None:
    """Returns once it is what the node answers."""
    async with asyncio.timeout(WAIT_S):
        while await asked() != answer:  # noqa: ASYNC110 - the node is doing it
            await asyncio.sleep(0.02)


async def test_what_a_dropped_queue_had_is_reclaimed_after_the_disk_was_full(troubled: Troubled) -> None:
    async with troubled.node.stub() as stub:
        session = await RawSession.open(stub)
        await session.change(declare("q"))
        for first in range(0, len(KEYS), 500):
            await session.change(bind("q", *KEYS[first : first + 500]))
        await session.change(drop("q"))
        troubled.begin("full")
        for _ in range(25):  # Reclaims meet the full disk meanwhile, too.
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await published(stub, KEYS[0])
            assert isinstance(from_rpc_error(caught.value), ResourceExhausted)
            await asyncio.sleep(0.02)
        troubled.end("full")
        for key in KEYS[::100]:
            await until(partial(routed_once_there_is_room, stub, key), 0)


async def test_while_checkpoints_fail_changes_are_refused_and_the_node_says_so(troubled: Troubled) -> None:
    async with troubled.node.stub() as stub:
        session = await RawSession.open(stub)
        assert await troubled.readiness() == 200
        troubled.begin("checkpoints")
        with pytest.raises(ResourceExhausted, match="checkpoints fail"):
            async with asyncio.timeout(WAIT_S):
                for number in range(1 << 20):
                    await session.change(declare(*(f"q{number}-{part}" for part in range(20))))
        await until(troubled.readiness, 503)
        describe = wire.DescribeRequest(describe=wire.Describe(queues=[b"q0-0"]))
        assert (await stub.Describe(describe)).description.queues[0].exists, "reads go on"
        troubled.end("checkpoints")
        await until(troubled.readiness, 200)
        await session.change(declare("after"))


async def test_a_clock_that_is_set_back_holds_no_pulled_message_longer(troubled: Troubled) -> None:
    async with troubled.node.stub() as stub:
        session = await RawSession.open(stub)
        await session.change(declare("q"), bind("q", "k"))
        await published(stub, "k")
        request = wire.PullRequest(pull=wire.Pull(queue=b"q", lease_ms=500))

        async def pulled() -> int:
            return len((await stub.Pull(request)).deliveries)

        assert await pulled() == 1
        troubled.begin("clock", "-3600")
        await until(pulled, 1)


async def test_files_are_their_users_own(troubled: Troubled, tmp_path: Path) -> None:
    async with troubled.node.stub() as stub:
        await published(stub, "k")
    folder = tmp_path / "data"
    shown = [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
    assert not shown
