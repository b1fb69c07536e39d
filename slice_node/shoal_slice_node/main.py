"""Wires the slice node: etcd, recovery, broker, gRPC.

`python -m shoal_slice_node --slice s01 --node n01 --listen HOST:PORT --data DIR --etcd HOST:PORT[,...] --cluster NAME`
A node that runs alone and owns every partition takes `--standalone` in place of the last two options.
When it is ready, it prints one line:
{"ready": true, "address": "host:port", "admin": "host:port", "http": "host:port", "slice": ..., "node": ...,
"lsn": ..., "core": "python" or "compiled"}.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal_contract.errors import ShoalError
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_coordination.client import EtcdClient
from shoal_coordination.leadership import note_lsn
from shoal_coordination.records import NodeRecord
from shoal_runtime import server_process
from shoal_runtime.tasks import Tasks, run_until
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.cluster_role import follow
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.joining import Joined, join
from shoal_slice_node.adapters.limits import GC_THRESHOLDS, STOP_S, SWITCH_S
from shoal_slice_node.adapters.recovery import Recovered, look, recover, standalone_identity
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core_choice import running_core
from shoal_slice_node.settings import Settings, settings_of
from shoal_slice_node.storage.data_folder import STORE_FOLDER

if TYPE_CHECKING:
    from shoal_slice_node.adapters.http import Watched

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the node and returns the exit code; argparse exits with 2 for bad arguments."""
    os.umask(0o077)  # Journal, store and logs hold every message: other users of the machine must not read them.
    settings = settings_of(arguments)
    return server_process.run(lambda stop: NodeProcess(settings, stop).run(), f"slice {settings.slice}")


class NodeProcess:
    """Runs one slice node, from its listening ports to its clean stop."""

    def __init__(self, settings: Settings, stop: asyncio.Event) -> None:
        self._settings = settings
        self._stop = stop
        self._failures: list[BaseException] = []
        self._servers: Servers
        self._watched: Watched | None = None

    async def run(self) -> None:
        """Serves until `stop` is set, or until something fails for good; then raises that error."""
        settings = self._settings
        _log.info("this process runs the %s core", running_core())
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._servers = Servers.listen(
            settings.listen,
            settings.advertise,
            settings.admin_listen,
            settings.admin_advertise,
            settings.memory.budget_bytes,
        )
        async with AsyncExitStack() as stack:
            if settings.http:
                # Imported here, so that a node without HTTP does not need its 15 MB.
                from shoal_slice_node.adapters.http import watched_over

                self._watched = await stack.enter_async_context(watched_over(settings.http, self._failed))
            if settings.etcd is None:
                await self._run_alone()
            else:
                await self._run_in_cluster(await stack.enter_async_context(EtcdClient(settings.etcd)))
        if self._failures:
            raise self._failures[0]

    def _failed(self, _: str, error: BaseException) -> None:
        self._failures.append(error)
        self._stop.set()

    async def _run_alone(self) -> None:
        settings = self._settings
        identity = standalone_identity(look(settings.data), settings.slice, settings.node)
        recovered = await run_until(self._stop, recover(settings.data, identity, settings.delta_rows))
        if recovered is None:
            return
        broker = self._broker(recovered, epoch=1)
        await run_until(self._stop, broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT))
        await self._serve(broker)

    async def _run_in_cluster(self, client: EtcdClient) -> None:
        settings, servers = self._settings, self._servers
        record = NodeRecord(settings.node, servers.address, settings.slice, servers.admin_address)
        joining = join(
            client, settings.cluster, record, settings.data, settings.accept_empty, settings.delta_rows, self._lost
        )
        joined = await run_until(self._stop, joining)
        if joined is not None:
            try:
                await self._lead(client, joined)
            finally:
                await joined.registration.end()

    def _lost(self) -> None:
        node = self._settings.node
        self._failed("lease", ShoalError(f"node {node} lost its lease: it may no longer serve", subject=node))

    async def _lead(self, client: EtcdClient, joined: Joined) -> None:
        settings, lease = self._settings, joined.registration.lease
        broker = self._broker(joined.recovered, joined.claimed.epoch, lambda: lease.left_s)
        async with Tasks(settings.slice, self._failed) as tasks:
            known = asyncio.Event()
            tasks.start("follow", follow(client, settings.cluster, settings.slice, broker, known))
            await run_until(self._stop, known.wait())
            await self._serve(broker)
        if not self._failures:
            await note_lsn(client, settings.cluster, joined.claimed, broker.node.commit.applied_lsn)

    def _broker(
        self, recovered: Recovered, epoch: int, lease_left_s: Callable[[], float] = lambda: float(1 << 20)
    ) -> Broker:
        """Makes and starts the broker. `lease_left_s`: see BrokerOptions."""
        settings = self._settings
        options = BrokerOptions(settings.memory, settings.archive, settings.archive_every_s, lease_left_s)
        broker = Broker(recovered, epoch, self._failed, options)
        broker.start()
        return broker

    async def _serve(self, broker: Broker) -> None:
        """Serves until `stop` is set; then stops the broker, with a checkpoint if nothing has failed."""
        if not self._stop.is_set():
            await self._serve_clients(broker)
        await broker.stop(checkpoint=not self._failures, within_s=self._settings.stop_s)

    async def _serve_clients(self, broker: Broker) -> None:
        settings, servers, watched = self._settings, self._servers, self._watched
        figures = Figures(broker, settings.slice, settings.node)
        servers.add(broker, figures, settings.data / STORE_FOLDER)
        # Objects loaded so far are long-lived: the collector need not check them again. New objects are mostly freed by
        # reference counting.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_S)
        await servers.start()
        lsn = broker.node.commit.applied_lsn
        facts: dict[str, str | int] = {
            "slice": settings.slice,
            "node": settings.node,
            "lsn": lsn,
            "core": running_core(),
        }
        if watched is not None:
            watched.serving(figures)
            facts["http"] = watched.address
        if not self._stop.is_set():
            server_process.say_ready(address=servers.address, admin=servers.admin_address, **facts)
            await self._stop.wait()
        if watched is not None:
            watched.stopping()
        if not self._failures:
            await broker.checkpoint_ahead(settings.stop_s / 2)
        await servers.stop(STOP_S if not self._failures else 0)
