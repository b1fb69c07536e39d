"""Watches a cluster: gives a view at once, then one after each change, for as long as the caller wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_view import ClusterView, ViewFold
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.watch import OnLink, watch_prefix


async def first_view(client: EtcdClient, cluster: str) -> ClusterView:
    """Waits for etcd, and until the cluster exists; returns its view. Raises what `watch_cluster` raises."""
    async with aclosing(watch_cluster(client, cluster)) as views:
        return await anext(views)


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
