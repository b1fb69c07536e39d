"""Reads a cluster's records once, and changes its map, as no server does yet: for tests."""

from __future__ import annotations

from shoal_contract.errors import Conflict, Unavailable
from shoal_contract.partition_map import PartitionMap
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_view import ClusterView, ViewFold
from shoal_coordination.entries import Put, mod_revision_is
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.watch import Snapshot


async def read_cluster(client: EtcdClient, cluster: str) -> ClusterView:
    """Returns the cluster as it is now. Raises Unavailable if it does not exist, Malformed."""
    found = await client.range_prefix(ClusterKeys(cluster).prefix)
    view = ViewFold(cluster).apply(Snapshot(found.revision, found.entries))
    if view is None:
        raise Unavailable(f"cluster {cluster} does not exist", subject=cluster)
    return view


async def replace_map(client: EtcdClient, cluster: str, current: PartitionMap, following: PartitionMap) -> None:
    """Stores `following` if the map is still at `current`'s version; else raises Conflict."""
    key = ClusterKeys(cluster).map
    entry = await client.get(key)
    if entry is not None and PartitionMap.decode(entry.value).version == current.version:
        done = await client.transact([mod_revision_is(key, entry.mod_revision)], [Put(key, following.encode())])
        if done.succeeded:
            return
    raise Conflict(f"the map of cluster {cluster} has changed since version {current.version}", subject=cluster)
