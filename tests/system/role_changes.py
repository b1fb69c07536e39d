"""Takes the lead of a local cluster's slices away, as an operator, another node or a lost lease would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Put, mod_revision_is
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.nodes import register_node
from shoal_coordination.options import EtcdOptions
from shoal_coordination.records import NodeRecord, SliceRecord, decode_record, encode_record
from shoal_local.cluster import LocalCluster
from shoal_local.commands import CLUSTER
from shoal_local.record import ETCD, read_record

WAIT_S = 60


class Leads:
    """The leads of a cluster's slices, in its etcd."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._keys = ClusterKeys(CLUSTER)

    async def record(self, slice_name: str) -> SliceRecord:
        return (await self._read(slice_name))[0]

    async def _read(self, slice_name: str) -> tuple[SliceRecord, int]:
        entry = await self._client.get(self._keys.slice(slice_name))
        assert entry is not None
        return decode_record(entry, SliceRecord), entry.mod_revision

    async def depose(self, slice_name: str) -> int:
        """Writes a record with a higher epoch and no leader. Returns that epoch."""
        while True:
            held, revision = await self._read(slice_name)
            key, deposed = self._keys.slice(slice_name), replace(held, epoch=held.epoch + 1, leader="")
            if (
                await self._client.transact([mod_revision_is(key, revision)], [Put(key, encode_record(deposed))])
            ).succeeded:
                return deposed.epoch

    @asynccontextmanager
    async def held(self, slice_name: str) -> AsyncIterator[None]:
        """Meanwhile another node, n09, leads the slice; clients still look for it where it was."""
        held, _ = await self._read(slice_name)
        record = NodeRecord("n09", held.leader_address, slice_name, held.leader_admin_address)
        other = await register_node(self._client, CLUSTER, record, ttl_s=10, on_loss=lambda: None)
        led = replace(held, epoch=held.epoch + 1, leader="n09")
        await self._client.put(self._keys.slice(slice_name), encode_record(led))
        yield
        await other.end()

    async def revoke(self, slice_name: str) -> int:
        """Ends the lease of the slice's leader behind its back. Returns the epoch in which it led."""
        held, _ = await self._read(slice_name)
        entry = await self._client.get(self._keys.node(held.leader))
        assert entry is not None
        await self._client.revoke_lease(entry.lease)
        return held.epoch

    async def led_above(self, slice_name: str, epoch: int) -> SliceRecord:
        """Returns the slice's record once a node leads it in a higher epoch."""
        async with asyncio.timeout(WAIT_S):
            while not (held := await self.record(slice_name)).leader or held.epoch <= epoch:  # noqa: ASYNC110 - etcd's
                await asyncio.sleep(0.02)
        return held


@asynccontextmanager
async def leads_of(cluster: LocalCluster) -> AsyncIterator[Leads]:
    endpoint = read_record(cluster.log_folder.parent).address(ETCD)
    async with EtcdClient(EtcdOptions((endpoint,))) as client:
        yield Leads(client)
