"""Registers a node: puts its record on its lease, so that the record vanishes with the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shoal_coordination.client import EtcdClient
from shoal_coordination.keys import ClusterKeys, check_record_name
from shoal_coordination.lease import Lease, grant_lease
from shoal_coordination.records import NodeRecord, encode_record


@dataclass(frozen=True, slots=True)
class Registration:
    """Holds the registration of a node. `incarnation`: etcd's revision of its record, which grows with every
    registration of the same node."""

    record: NodeRecord
    incarnation: int
    lease: Lease

    async def end(self) -> None:
        """Ends the registration at once: etcd no longer has the node."""
        await self.lease.revoke()


async def register_node(
    client: EtcdClient, cluster: str, record: NodeRecord, *, ttl_s: int, on_loss: Callable[[], None]
) -> Registration:
    """Registers a node, and replaces an earlier incarnation of it. `on_loss`: called when the lease is lost; then stop
    serving. Raises InvalidName, OutOfRange, and what EtcdClient raises (then repeat the call: an unused lease ends by
    itself).
    """
    key = ClusterKeys(cluster).node(record.node)
    check_record_name(record.slice, "slice")
    lease = await grant_lease(client, ttl_s, on_loss)
    try:
        # This puts the record on the new lease, so that it no longer ends with an earlier incarnation's.
        incarnation = await client.put(key, encode_record(record), lease.id)
    except asyncio.CancelledError:
        await lease.revoke()  # The record may be there already.
        raise
    except BaseException:
        await lease.abandon()
        raise
    return Registration(record, incarnation, lease)
