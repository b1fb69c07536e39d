"""A real process whose slice another node leads for a while: what it shows, that it comes back, and that it stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
import pytest_asyncio

from shoal_contract.errors import Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.nodes import register_node
from shoal_coordination.records import NodeRecord, SliceRecord, decode_record, encode_record
from shoal_slice_node.storage.offline import check_path
from tests.folders import NewFolder

from .cluster_nodes import Clusters, clusters
from .fencing_steps import serves
from .node_process import NodeProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHANGES = 20
GROWTH_BYTES_MAX = 16 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster_maker(module_folder: NewFolder) -> AsyncIterator[Clusters]:
    async with clusters(module_folder("etcd")) as found:
        yield found


async def put_leader(maker: Clusters, cluster: str, leader: str) -> None:
    """Writes the slice's record with a higher epoch and this leader."""
    key = ClusterKeys(cluster).slice("s01")
    entry = await maker.client.get(key)
    assert entry is not None
    held = decode_record(entry, SliceRecord)
    await maker.client.put(key, encode_record(replace(held, epoch=held.epoch + 1, leader=leader)))


@asynccontextmanager
async def led_by_another(maker: Clusters, cluster: str) -> AsyncIterator[None]:
    """Meanwhile node n09 leads the slice."""
    record = NodeRecord("n09", "n09:7000", "s01")
    other = await register_node(maker.client, cluster, record, ttl_s=10, on_loss=lambda: None)
    await put_leader(maker, cluster, "n09")
    yield
    await other.end()


async def role_shown(http: httpx.AsyncClient) -> str:
    lines = (await http.get("/metrics")).text.splitlines()
    (line,) = (one for one in lines if one.startswith("shoal_slice_node_role{"))
    return line.partition('role="')[2].partition('"')[0]


async def until_role(http: httpx.AsyncClient, role: str) -> None:
    while await role_shown(http) != role:
        pass


async def test_a_process_whose_slice_another_node_leads_says_so_and_comes_back(
    cluster_maker: Clusters, tmp_path: Path
) -> None:
    cluster, log = await cluster_maker.create(), tmp_path / "log"
    how = cluster_maker.how(cluster, tmp_path / "faults", log)
    node = await NodeProcess.start(tmp_path / "data", "--http", "127.0.0.1:0", how=how)
    try:
        async with httpx.AsyncClient(base_url=f"http://{node.http}") as http, node.stub() as stub:
            await serves(node)
            assert (await http.get("/readyz")).status_code == 200
            assert await role_shown(http) == "leading"
            async with led_by_another(cluster_maker, cluster):
                await until_role(http, "following")
                ready = await http.get("/readyz")
                assert (ready.status_code, "it is following" in ready.text) == (503, True)
                assert (await http.get("/healthz")).status_code == (await http.get("/startedz")).status_code == 200
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Declare(wire.DeclareRequest(queue=b"q"))
                error = from_rpc_error(refused.value)
                assert isinstance(error, Unavailable)
                assert "node n01 does not lead slice s01 now, and tries to lead it again" in error.message
                assert "slice s01 is led by node n09 in epoch 2" in error.message
            await until_role(http, "leading")
            await serves(node)
            assert (await http.get("/readyz")).status_code == 200
            assert await cluster_maker.epoch(cluster) == 3
            async with led_by_another(cluster_maker, cluster):
                await until_role(http, "following")
                assert await node.stop() == 0, "it ends when it is told, while it follows"
    finally:
        await node.kill()
    told = log.read_text()
    assert "this node leads its slice no longer, after epoch 1: slice s01 is led by node n09" in told
    assert "Traceback" not in told
    assert check_path(tmp_path / "data").sound


async def test_a_process_does_not_grow_with_its_role_changes(cluster_maker: Clusters, tmp_path: Path) -> None:
    cluster = await cluster_maker.create()
    node = await NodeProcess.start(tmp_path / "data", how=cluster_maker.how(cluster, tmp_path / "faults"))
    measured = psutil.Process(node.process.pid)
    found: list[tuple[int, int, int]] = []
    try:
        for number in range(CHANGES + 5):
            await serves(node)
            await put_leader(cluster_maker, cluster, "")
            while await cluster_maker.epoch(cluster) < 2 * number + 3:
                pass
            await serves(node)
            found.append((measured.num_fds(), measured.num_threads(), measured.memory_info().rss))
        assert await node.stop() == 0
    finally:
        await node.kill()
    files, threads, sizes = zip(*found[4:], strict=True)
    assert max(files) <= files[0] + 4 and max(threads) <= threads[0] + 4, (files, threads)
    assert sizes[-1] - sizes[0] < GROWTH_BYTES_MAX, sizes
    assert check_path(tmp_path / "data").sound
