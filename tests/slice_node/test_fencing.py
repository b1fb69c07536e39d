"""A node whose lease may be over, or whose slice another node leads, acknowledges nothing: real processes and etcd."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.journal_segment import SegmentScan
from tests.folders import NewFolder

from .cluster_nodes import LEASE_S, Clusters, clusters
from .core_driver import publish
from .fencing_steps import WAIT_S, serves
from .node_process import NodeProcess, launch
from .raw_session import RawSession

pytestmark = pytest.mark.asyncio(loop_scope="module")
PUBLISHERS = 4


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster_maker(module_folder: NewFolder) -> AsyncIterator[Clusters]:
    async with clusters(module_folder("etcd")) as found:
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

    async def cut_off(self) -> None:
        """Returns once each was refused, or its stream has ended."""
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*self._tasks)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def changes_in(journal: Path) -> int:
    """How many frames of clients a journal has."""
    files = DiskFiles()
    scans = [SegmentScan(files.read(one.path), one.first_lsn) for one in list_segments(files, journal)]
    return sum(record.kind == Kind.CHANGE for scan in scans for record in scan)


async def ended(node: NodeProcess) -> int:
    async with asyncio.timeout(WAIT_S):
        return await node.process.wait()


def told_of_it(log: Path) -> None:
    """Returns once the process has noticed that its lease is lost, or a lease's time has passed."""
    until = time.monotonic() + LEASE_S
    while time.monotonic() < until and "is lost" not in log.read_text():
        time.sleep(0.01)


async def test_a_node_that_stood_still_beyond_its_lease_acknowledges_nothing_until_it_leads_again(
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
    written = changes_in(tmp_path / "data" / "journal")
    os.kill(node.process.pid, signal.SIGCONT)
    await publishers.cut_off()
    assert len(publishers.receipts) <= written, "it acknowledges at most what it had written before it was stopped"
    await serves(node)
    assert await cluster_maker.epoch(cluster) == 2
    assert await node.stop() == 0, "it is the same process"


async def test_a_node_that_was_deposed_by_other_data_stops_and_acknowledges_nothing_more(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    """A second process of the same name took the slice with an empty folder, and both went on acknowledging."""
    log = tmp_path / "log"
    how = cluster_maker.how(await cluster_maker.create(), tmp_path / "faults", log)
    first = await NodeProcess.start(tmp_path / "data", how=how)
    publishers = Publishers(first)
    await publishers.some_came()
    second = await NodeProcess.start(tmp_path / "other", "--accept-empty", how=how)
    try:
        assert await ended(first) == 1
        gone = time.monotonic()
        await publishers.end()
        assert publishers.since(gone) == 0
        assert "of another life of slice s01" in log.read_text()
        async with second.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
    finally:
        await first.kill()
        await second.kill()


async def test_two_processes_of_one_name_and_life_do_not_depose_each_other_for_ever(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    cluster, log = await cluster_maker.create(), tmp_path / "log"
    how = cluster_maker.how(cluster, tmp_path / "faults", log)
    first = await NodeProcess.start(tmp_path / "data", how=how)
    assert await first.stop() == 0
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    first = await NodeProcess.start(tmp_path / "data", how=how)
    second = await NodeProcess.start(tmp_path / "copy", how=how)
    try:
        assert await ended(first) == 1
        assert "another process runs as node n01: it leads slice s01 in epoch 3" in log.read_text()
        await serves(second)
        assert await cluster_maker.epoch(cluster) == 3
    finally:
        await first.kill()
        await second.kill()


async def test_a_node_that_lost_its_lease_while_it_started_says_ready_when_it_leads_again(
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
            assert json.loads(await process.stdout.readline())["ready"]
            assert await cluster_maker.epoch(cluster) == 2, "it was not ready in the first"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
