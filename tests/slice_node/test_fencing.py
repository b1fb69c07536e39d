"""A node whose lease may be over, or whose slice another node leads, acknowledges nothing: real processes and etcd."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire

from .cluster_nodes import LEASE_S, Clusters, clusters
from .core_driver import publish
from .node_process import NodeProcess, launch
from .raw_session import RawSession

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 30
PUBLISHERS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster_maker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clusters]:
    async with clusters(tmp_path_factory.mktemp("etcd")) as found:
        yield found


class Publishers:
    """Sessions that publish one message after the other until their streams end. `receipts`: when each came."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.receipts: list[float] = []
        self._tasks = [asyncio.create_task(self._publish()) for _ in range(PUBLISHERS)]

    async def _publish(self) -> None:
        async with self._node.stub() as stub:
            session = await RawSession.open(stub)
            while True:
                try:
                    await session.change(publish("k", b"x"))
                except (ShoalError, grpc.aio.AioRpcError, AssertionError):  # Refused, or the stream ended.
                    return
                self.receipts.append(time.monotonic())

    def since(self, moment: float) -> int:
        """How many receipts came after that."""
        return sum(came > moment for came in self.receipts)

    async def some_came(self) -> None:
        count = len(self.receipts)
        async with asyncio.timeout(WAIT_S):
            while len(self.receipts) < count + PUBLISHERS:  # noqa: ASYNC110 - another's doing
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def ended(node: NodeProcess) -> int:
    async with asyncio.timeout(WAIT_S):
        return await node.process.wait()


def told_of_it(log: Path) -> None:
    """Returns once the process has noticed that its lease is lost, or a lease's time has passed."""
    until = time.monotonic() + LEASE_S
    while time.monotonic() < until and "is lost" not in log.read_text():
        time.sleep(0.01)


async def test_a_node_that_stood_still_beyond_its_lease_acknowledges_nothing(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    """A node that was stopped and went on acknowledged whatever had come meanwhile, for two seconds."""
    cluster = await cluster_maker.create()
    how = cluster_maker.how(cluster, tmp_path / "faults")
    node = await NodeProcess.start(tmp_path / "data", how=how)
    publishers = Publishers(node)
    await publishers.some_came()
    os.kill(node.process.pid, signal.SIGSTOP)
    await cluster_maker.until_gone(cluster)
    continued = time.monotonic()
    os.kill(node.process.pid, signal.SIGCONT)
    assert await ended(node) == 1
    await publishers.end()
    assert publishers.since(continued) == 0


async def test_a_node_that_was_deposed_stops_and_acknowledges_nothing_more(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    """A second process of the same name took the slice with an empty folder, and both went on acknowledging."""
    how = cluster_maker.how(await cluster_maker.create(), tmp_path / "faults")
    first = await NodeProcess.start(tmp_path / "data", how=how)
    publishers = Publishers(first)
    await publishers.some_came()
    second = await NodeProcess.start(tmp_path / "other", "--accept-empty", how=how)
    try:
        assert await ended(first) == 1
        gone = time.monotonic()
        await publishers.end()
        assert publishers.since(gone) == 0
        async with second.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
    finally:
        await first.kill()
        await second.kill()


async def test_a_node_that_lost_its_lease_while_it_started_does_not_say_ready(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    cluster, faults = await cluster_maker.create(), tmp_path / "faults"
    log = tmp_path / "log"
    how = cluster_maker.how(cluster, faults, log)
    (faults / "slow").touch()
    process = await launch(tmp_path / "data", how=how)
    try:
        async with asyncio.timeout(WAIT_S):
            while not (faults / "slow now").exists():  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.01)
            await cluster_maker.take_lease(cluster)
            await asyncio.to_thread(told_of_it, log)
            (faults / "slow").unlink()
            assert process.stdout is not None
            assert await process.stdout.read() == b"", "it says that it is ready"
            assert await process.wait() == 1
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
