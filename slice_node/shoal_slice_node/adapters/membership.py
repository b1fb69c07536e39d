"""This node in its cluster: registered in etcd, leading its slice, owning the partitions that the map gives it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from shoal_contract.errors import Conflict, OutcomeUnknown
from shoal_contract.partition_map import PartitionMap
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import watch_cluster
from shoal_coordination.leadership import claim_slice_leadership
from shoal_coordination.nodes import Registration, register_node
from shoal_coordination.records import NodeRecord, SliceRecord
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import CLAIM_RETRY_MS, LEASE_S

_log = logging.getLogger(__name__)


async def lead_slice(
    client: EtcdClient, cluster: str, record: NodeRecord, on_loss: Callable[[], None]
) -> tuple[Registration, SliceRecord]:
    """Registers and claims; waits while another node's lease still runs. Raises what etcd's client raises for good."""
    while True:
        try:
            registration = await register_node(client, cluster, record, ttl_s=LEASE_S, on_loss=on_loss)
            return registration, await claim_slice_leadership(client, cluster, record.slice, registration)
        except (Conflict, OutcomeUnknown) as error:
            _log.warning("slice %s is not ours yet: %s", record.slice, error)
        await asyncio.sleep(CLAIM_RETRY_MS / 1000)


def owned_bytes(partition_map: PartitionMap, slice_name: str) -> bytes:
    """One byte a partition: 1 owned."""
    owned = bytearray(partition_map.partitions)
    for partition in partition_map.partitions_of(slice_name):
        owned[partition] = 1
    return bytes(owned)


async def follow_map(client: EtcdClient, cluster: str, slice_name: str, broker: Broker, known: asyncio.Event) -> None:
    """Until cancelled; sets `known` once the broker has a map."""
    async with aclosing(watch_cluster(client, cluster)) as views:
        async for view in views:
            if view.map.version > broker.state.map_version:
                await broker.set_owned(view.map.version, owned_bytes(view.map, slice_name))
            known.set()
