"""Wires the slice node: etcd, its seat in the cluster, its roles, gRPC and HTTP.

`python -m shoal_slice_node --slice s01 --node n01 --listen HOST:PORT --data DIR --etcd HOST:PORT[,...] --cluster NAME`
A node that runs alone and owns every partition takes `--standalone` in place of the last two options.
When it leads its slice for the first time, it prints one line:
{"ready": true, "address": "host:port", "admin": "host:port", "http": "host:port", "slice": ..., "node": ...,
"lsn": ..., "core": "python" or "compiled"}.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal_contract.data_folder import STORE_FOLDER
from shoal_coordination.client import EtcdClient
from shoal_coordination.records import NodeRecord
from shoal_runtime import server_process
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.doors import Doors
from shoal_slice_node.adapters.joining import Alone, Member, Seat
from shoal_slice_node.adapters.node_data import DataOptions
from shoal_slice_node.adapters.roles import Roles
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core_choice import running_core
from shoal_slice_node.settings import Settings, settings_of

if TYPE_CHECKING:
    from shoal_slice_node.adapters.http import Watched

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the node and returns the exit code; argparse exits with 2 for bad arguments."""
    os.umask(0o077)  # Journal, store and logs hold every message: other users of the machine must not read them.
    settings = settings_of(arguments)
    return server_process.run(lambda stop: run(settings, stop), f"slice {settings.slice}")


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Runs one slice node until `stop` is set, or until something fails for good; then raises that error."""
    _log.info("this process runs the %s core", running_core())
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    servers = Servers(
        settings.listen,
        settings.advertise,
        settings.admin_listen,
        settings.admin_advertise,
        settings.memory.budget_bytes,
    )
    failures: list[BaseException] = []

    def http_failed(_: str, error: BaseException) -> None:
        failures.append(error)
        stop.set()

    async with AsyncExitStack() as stack:
        watched: Watched | None = None
        if settings.http:
            # Imported here, so that a node without HTTP does not need its 15 MB.
            from shoal_slice_node.adapters.http import watched_over

            watched = await stack.enter_async_context(watched_over(settings.http, http_failed))
        client = None if settings.etcd is None else await stack.enter_async_context(EtcdClient(settings.etcd))
        await _roles(settings, servers, watched, client, stop).run()
    if failures:
        raise failures[0]


def _roles(
    settings: Settings, servers: Servers, watched: Watched | None, client: EtcdClient | None, stop: asyncio.Event
) -> Roles:
    def say_ready(broker: Broker) -> None:
        if not stop.is_set():
            http = {} if watched is None else {"http": watched.address}
            names = {"slice": settings.slice, "node": settings.node, "core": running_core()}
            addresses = {"address": servers.address, "admin": servers.admin_address, **http}
            server_process.say_ready(**addresses, **names, lsn=broker.node.commit.applied_lsn)

    doors = Doors(servers, watched, settings.slice, settings.node, settings.data / STORE_FOLDER, say_ready)
    data = DataOptions(settings.memory.delta_bytes, settings.archive, settings.archive_every_s)
    seat = _seat(settings, servers, client)
    return Roles(seat, doors, data, BrokerOptions(settings.memory), stop, settings.stop_s)


def _seat(settings: Settings, servers: Servers, client: EtcdClient | None) -> Seat:
    if client is None:
        return Alone(settings.slice, settings.node, settings.data, settings.delta_rows)
    record = NodeRecord(settings.node, servers.address, settings.slice, servers.admin_address)
    return Member(client, settings.cluster, record, settings.data, settings.accept_empty, settings.delta_rows)
