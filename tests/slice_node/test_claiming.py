"""A node that waits for its slice, against a real etcd: it leaks nothing, tells no losses, and ends when it is told."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_contract.errors import Conflict
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.leadership import claim_slice_leadership
from shoal_coordination.nodes import Registration, register_node
from shoal_coordination.records import NodeRecord, encode_record
from shoal_coordination.slice_data import ClaimedData
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters import claiming
from shoal_slice_node.adapters.claiming import lead_slice

WAIT_S = 60
DATA = ClaimedData("d" * 32, 0)
NODE = NodeRecord("n2", "n2:7000", "s1")


@pytest.fixture
async def leader(client: EtcdClient, cluster: str) -> AsyncIterator[Registration]:
    """Another node, which leads the slice; n2 is in sync with it."""
    record = NodeRecord("n1", "n1:7000", "s1")
    leader = await register_node(client, cluster, record, ttl_s=10, on_loss=lambda: None)
    led = await claim_slice_leadership(client, cluster, "s1", leader, DATA)
    await client.put(ClusterKeys(cluster).slice("s1"), encode_record(replace(led, in_sync=("n1", "n2"))))
    yield leader
    await leader.end()


def keepers() -> int:
    return sum(thread.name.startswith("lease ") for thread in threading.enumerate())


async def test_a_waiting_node_has_one_lease_and_leads_once_the_other_is_gone(
    client: EtcdClient, cluster: str, leader: Registration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lease, however often it tries: not one for each attempt, each with a keeper for ever."""
    monkeypatch.setattr(claiming, "CLAIM_RETRY_MS", 10)
    attempts = 0
    losses: list[None] = []

    async def counted(*given: object) -> object:
        nonlocal attempts
        attempts += 1
        return await claim_slice_leadership(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(claiming, "claim_slice_leadership", counted)
    async with Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        leading = tasks.start("lead", lead_slice(client, cluster, NODE, DATA, lambda: losses.append(None)))
        while attempts < 20:  # noqa: ASYNC110 - counts
            await asyncio.sleep(0.01)
        assert keepers() == 2, "the leader's and the waiting node's"
        await leader.end()
        registration, record = await leading
    assert (record.leader, record.epoch) == ("n2", 2)
    await registration.end()
    assert keepers() == 0
    assert not losses


async def test_a_node_that_is_stopped_while_it_registers_leaves_nothing(
    client: EtcdClient, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was there, and it had not heard so: it stayed until the lease ran out."""
    put = client.put
    done = asyncio.Event()

    async def unheard(*given: Any) -> None:
        await put(*given)
        done.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(client, "put", unheard)
    async with Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        registering = tasks.start("register", register_node(client, cluster, NODE, ttl_s=10, on_loss=lambda: None))
        await done.wait()
        registering.cancel()
        await asyncio.wait([registering])
    assert await client.get(ClusterKeys(cluster).node("n2")) is None and keepers() == 0


async def test_a_node_that_is_stopped_while_it_waits_leaves_nothing(
    client: EtcdClient, cluster: str, leader: Registration
) -> None:
    async with Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        waiting = tasks.start("lead", lead_slice(client, cluster, NODE, DATA, lambda: None))
        while await client.get(ClusterKeys(cluster).node("n2")) is None:  # noqa: ASYNC110 - another's doing
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert await client.get(ClusterKeys(cluster).node("n2")) is None, "its registration is withdrawn"
    assert keepers() == 1, "the leader's"


async def test_what_waiting_does_not_mend_is_raised_at_once(client: EtcdClient, cluster: str) -> None:
    first, record = await lead_slice(client, cluster, NODE, DATA, lambda: None)
    await first.end()
    assert record.incarnation == DATA.incarnation
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(Conflict, match="of another life of slice s1"):
            await lead_slice(client, cluster, NODE, ClaimedData("e" * 32, 0), lambda: None)
    assert keepers() == 0


async def test_a_waiting_node_that_loses_its_lease_registers_again_and_tells_nobody(
    client: EtcdClient, cluster: str, leader: Registration
) -> None:
    losses: list[None] = []
    key = ClusterKeys(cluster).node("n2")
    async with Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        waiting = tasks.start("lead", lead_slice(client, cluster, NODE, DATA, lambda: losses.append(None)))
        while (entry := await client.get(key)) is None:  # noqa: ASYNC110 - another's doing
            await asyncio.sleep(0.01)
        await client.revoke_lease(entry.lease)
        while (again := await client.get(key)) is None or again.lease == entry.lease:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert not losses


async def test_a_process_that_waits_for_its_slice_ends_when_it_is_told(
    client: EtcdClient, cluster: str, leader: Registration, tmp_path: Path
) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    (endpoint,) = client.options.endpoints
    command = ["-m", "shoal_slice_node", "--slice", "s1", "--node", "n2", "--listen", "127.0.0.1:0"]
    command += ["--data", str(tmp_path / "s1"), "--accept-empty", "--etcd", endpoint, "--cluster", cluster]
    node = await asyncio.create_subprocess_exec(sys.executable, *command)
    try:
        async with asyncio.timeout(WAIT_S):
            while await client.get(ClusterKeys(cluster).node("n2")) is None:  # noqa: ASYNC110 - another's doing
                await asyncio.sleep(0.01)
            node.terminate()
            assert await node.wait() == 0
    finally:
        if node.returncode is None:
            node.kill()
        await node.wait()
    assert await client.get(ClusterKeys(cluster).node("n2")) is None
