"""Slice nodes of a real cluster: an etcd, clusters in it, and the arguments with which a node joins one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import SliceRecord, decode_record
from shoal_local.etcd import LocalEtcd
from tests.repository import with_tests

from .faulty_node import FOLDER, LEASE
from .node_process import How

LEASE_S = 3
"""Of the nodes here: short, so that tests of its end are."""
PARTITIONS = 8
WAIT_S = 60


class Clusters:
    """An etcd with clusters of one slice, s01."""

    def __init__(self, etcd: LocalEtcd, client: EtcdClient) -> None:
        self.etcd = etcd
        self.client = client

    async def create(self) -> str:
        """Returns its name."""
        name = f"c{uuid.uuid4().hex}"
        await create_cluster(self.client, name, ["s01"], PARTITIONS)
        return name

    def where(self, cluster: str) -> Sequence[str]:
        """Arguments of a node."""
        return ("--etcd", self.etcd.endpoint, "--cluster", cluster)

    async def until_gone(self, cluster: str) -> None:
        """Returns once the lease of the cluster's node is over."""
        async with asyncio.timeout(WAIT_S):
            while await self.client.get(ClusterKeys(cluster).node("n01")) is not None:  # noqa: ASYNC110 - etcd's doing
                await asyncio.sleep(0.01)

    async def epoch(self, cluster: str) -> int:
        entry = await self.client.get(ClusterKeys(cluster).slice("s01"))
        return 0 if entry is None else decode_record(entry, SliceRecord).epoch

    async def take_lease(self, cluster: str) -> None:
        """Ends the lease of the cluster's node behind its back, if it has not ended yet."""
        entry = await self.client.get(ClusterKeys(cluster).node("n01"))
        if entry is not None:
            await self.client.revoke_lease(entry.lease)

    def how(self, cluster: str, faults: Path, log: Path | None = None) -> How:
        """Starts a node with a short lease, whose faults are the files in `faults`."""
        faults.mkdir(exist_ok=True)
        environment = {FOLDER: str(faults), LEASE: str(LEASE_S), **with_tests()}
        return How(("-m", "tests.slice_node.faulty_node"), self.where(cluster), log, None, environment)


@asynccontextmanager
async def clusters(folder: Path) -> AsyncIterator[Clusters]:
    etcd = LocalEtcd(folder / "etcd")
    await etcd.start()
    try:
        async with EtcdClient(etcd.options()) as client:
            yield Clusters(etcd, client)
    finally:
        await etcd.stop()
