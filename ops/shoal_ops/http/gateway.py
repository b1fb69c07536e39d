"""Holds what all requests share: the connection to the cluster and what runs over it. There is one for the process.

Belongs here: opening and closing in order. Not here: HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Request

import shoal
from shoal_contract.errors import Unavailable
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import partition_of
from shoal_ops.http import limits
from shoal_ops.http.arrivals import Arrivals
from shoal_ops.http.large_work import LargeWork
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.push import Push
from shoal_ops.http.samples import Sampler
from shoal_ops.http.takes import Takes
from shoal_ops.http.watches import Watches
from shoal_ops.sweep.sweeper import Sweeper
from shoal_runtime.tasks import Tasks


class Gateway:
    """Holds the shared state of all requests, and is made by `open_gateway`. `stopping`: no new long polls and streams
    begin, and the open ones end."""

    def __init__(self, broker: shoal.Broker, metrics: Metrics, tasks: Tasks) -> None:
        self.broker = broker
        self._tasks = tasks
        self.admin = shoal.Admin(broker)
        self.leases = shoal.Leases(broker)
        self.metrics = metrics
        self.arrivals = Arrivals(self.leases)
        self.push = Push(broker, tasks)
        self.watches = Watches()
        self.has_room: Callable[[], bool] = lambda: True
        """Returns whether callers have read enough of earlier answers for another large one."""
        self.pulls = Takes(limits.PULLS_MAX, limits.WAITING_PULLS_MAX, lambda: self.has_room())
        self.peeks = Takes(limits.PEEKS_MAX, limits.WAITING_PEEKS_MAX, lambda: self.has_room())
        self.lists = Takes(limits.LISTS_MAX, limits.WAITING_LISTS_MAX, lambda: self.has_room())
        self.large_work = LargeWork()
        self.sampler = Sampler(self.admin)
        self.sweeper = Sweeper(shoal.Parts(broker))
        self.stopping = False
        self.is_leaving: Callable[[], bool] = lambda: False
        """Returns whether the process was asked to stop: then it is not ready, but serves until `stop`."""
        self._owners: tuple[int, tuple[str, ...]] = (0, ())
        """The map's version, and the owner of each of its partitions."""
        tasks.start("arrivals", self.arrivals.look())
        tasks.start("samples", self.sampler.run())
        tasks.start("sweep", self.sweeper.for_ever())
        metrics.watch("shoal_admin_streams", "Event streams open now.", lambda: len(self.push))
        metrics.watch("shoal_admin_watches", "Watches open now.", lambda: len(self.watches))
        metrics.watch("shoal_admin_stream_held_bytes", "What they have to write.", lambda: self.push.held_bytes)
        metrics.watch("shoal_admin_waiting_pulls", "Long polls that wait now.", lambda: len(self.arrivals))
        metrics.watch("shoal_admin_large_work", "Large bodies that wait or are read.", lambda: len(self.large_work))
        swept = self.sweeper.figures
        metrics.count("shoal_admin_swept_parts", "Parts of queues that were looked at.", lambda: swept.looked)
        metrics.count(
            "shoal_admin_swept_dropped_parts", "Parts that drops had left behind, dropped.", lambda: swept.dropped
        )

    async def home_of(self, queue: bytes) -> str:
        return (await self.place_of(direct_key(queue)))[1]

    async def place_of(self, key: bytes) -> tuple[int, str]:
        """Returns the partition and the slice of a key, by this connection's map."""
        version = self.broker.map_version
        if self._owners[0] != version:
            self._owners = (version, await self.admin.partitions())
        owners = self._owners[1]
        partition = partition_of(key, len(owners))
        return partition, owners[partition]

    def check_ready(self) -> None:
        """Raises Unavailable once the process was asked to stop."""
        self.check_running()
        if self.is_leaving():
            raise Unavailable("this gateway is stopping; use another", subject="gateway")

    def check_running(self) -> None:
        """Raises Unavailable once `stop` was called."""
        if self.stopping:
            raise Unavailable("this gateway is stopping; connect again", subject="gateway")

    def stop(self) -> None:
        """Ends streams and long polls; other requests under way go on."""
        self.stopping = True
        self.push.end_all("stopping")
        self.arrivals.end_all()
        self._tasks.start("end watches", self.watches.stop())


@asynccontextmanager
async def open_gateway(
    redirectors: list[str], metrics: Metrics, deadline_s: float, tasks: Tasks
) -> AsyncIterator[Gateway]:
    """Opens the gateway, and closes it at the end. Raises Unavailable where no redirector answers."""
    gateway: Gateway | None = None

    def told(error: Exception) -> None:
        if gateway is not None:
            gateway.push.told(error)

    async with shoal.connect(*redirectors, deadline_s=deadline_s, on_error=told) as broker:
        gateway = Gateway(broker, metrics, tasks)
        try:
            yield gateway
        finally:
            gateway.stop()
            await gateway.push.stop()
            await gateway.watches.stop()
            gateway.large_work.stop()


async def of(request: Request) -> Gateway:
    """Returns the gateway that a request belongs to. A FastAPI dependency; it is async because FastAPI runs others in a
    thread."""
    found = request.app.state.gateway
    assert isinstance(found, Gateway)
    return found
