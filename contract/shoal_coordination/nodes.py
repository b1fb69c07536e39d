"""A node's registration: its record on its lease, so that it vanishes with the node."""

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
    """A registered node. `incarnation` grows with every registration of the same node: etcd's revision of it."""

    record: NodeRecord
    incarnation: int
    lease: Lease

    async def end(self) -> None:
        """The node is gone for everyone, at once."""
        await self.lease.revoke()


async def register_node(
    client: EtcdClient, cluster: str, record: NodeRecord, *, ttl_s: int, on_loss: Callable[[], None]
) -> Registration:
    """Registers a node, in place of an earlier incarnation of it. `on_loss`: the lease is lost; stop serving.

    Raises InvalidName, OutOfRange, and what EtcdClient raises (then repeat it: an unused lease ends by itself).
    """
    key = ClusterKeys(cluster).node(record.node)
    check_record_name(record.slice, "slice")
    lease = await grant_lease(client, ttl_s, on_loss)
    try:
        # Put on the new lease, the record no longer hangs on an earlier incarnation's.
        incarnation = await client.put(key, encode_record(record), lease.id)
    except asyncio.CancelledError:
        await lease.revoke()  # The record may be there already.
        raise
    except BaseException:
        await lease.abandon()
        raise
    return Registration(record, incarnation, lease)
