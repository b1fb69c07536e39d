"""Watching a cluster: a view at once, then one after each change, for as long as it is wanted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from shoal_contract.errors import Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_view import ClusterView, ViewFold
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.watch import OnLink, Snapshot, watch_prefix


async def read_cluster(client: EtcdClient, cluster: str) -> ClusterView:
    """The cluster now. Raises Unavailable if it does not exist (yet), Malformed, and what EtcdClient raises."""
    found = await client.range_prefix(ClusterKeys(cluster).prefix)
    view = ViewFold(cluster).apply(Snapshot(found.revision, found.entries))
    if view is None:
        raise Unavailable(f"cluster {cluster} does not exist", subject=cluster)
    return view


async def watch_cluster(
    client: EtcdClient, cluster: str, on_link: OnLink = lambda linked: None
) -> AsyncGenerator[ClusterView, None]:
    """Waits until the cluster exists; then yields a view at once and after each change. Never ends by itself.

    Close it (`contextlib.aclosing`) to end it. `on_link` is told whether etcd is heard. Changes that came while the
    consumer was busy are yielded one by one. Raises Malformed for a damaged record, PermissionDenied, Unauthenticated.
    """
    fold = ViewFold(cluster)
    async with aclosing(watch_prefix(client, ClusterKeys(cluster).prefix, on_link)) as updates:
        async for update in updates:
            view = fold.apply(update)
            if view is not None:
                yield view
