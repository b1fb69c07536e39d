"""Wires the slice node: arguments and environment, etcd, broker, gRPC. Nobody else reads either.

`python -m shoal_slice_node --slice s01 --node n01 --listen HOST:PORT --data DIR --etcd HOST:PORT[,...] --cluster NAME`
or, alone and owning every partition, with `--standalone` in place of the last two.
Ready it prints one line: {"ready": true, "address": "host:port", "http": "host:port", "slice": ..., "lsn": ...}.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shoal_contract import server_process
from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.tasks import OnFailure, Tasks
from shoal_coordination.arguments import ENDPOINTS_METAVAR, PASSWORD_VARIABLE, add_etcd_arguments, etcd_options
from shoal_coordination.client import EtcdClient
from shoal_coordination.keys import check_record_name
from shoal_coordination.options import EtcdOptions
from shoal_coordination.records import NodeRecord
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.data_folder import STORE_FOLDER
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.limits import (
    ARCHIVE_EVERY_S_DEFAULT,
    CHECKPOINT_STOP_S,
    DELTA_ROWS_MAX,
    GC_THRESHOLDS,
    STOP_S,
)
from shoal_slice_node.adapters.mapped_memory import memory_mib_default
from shoal_slice_node.adapters.membership import follow_map, lead_slice
from shoal_slice_node.adapters.recovery import look, recover, standalone_identity
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core.memory import MemoryPlan, plan_memory

if TYPE_CHECKING:
    from shoal_slice_node.adapters.http import Watched

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """`etcd` None: standalone. `advertise` empty: the address that is listened on; `admin_listen` and its advertised
    form likewise, for AdminService and BulkService. `archive`: of this node alone. `http` empty: none."""

    slice: str
    node: str
    listen: str
    advertise: str
    admin_listen: str
    admin_advertise: str
    data: Path
    accept_empty: bool
    cluster: str
    etcd: EtcdOptions | None
    delta_rows: int
    memory: MemoryPlan
    archive: Path | None
    archive_every_s: float
    http: str
    stop_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; argparse exits with 2 for bad arguments."""
    os.umask(0o077)  # Journal, store and logs hold every message: of no use to other users of the machine.
    settings = settings_of(arguments)
    return server_process.run(lambda stop: serve(settings, stop), f"slice {settings.slice}")


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until `stop`, or until something fails for good: then raises it."""
    failures: list[BaseException] = []

    def failed(_: str, error: BaseException) -> None:
        failures.append(error)
        stop.set()

    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    servers = Servers.listen(settings.listen, settings.advertise, settings.admin_listen, settings.admin_advertise)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Tasks(settings.slice, failed))
        watched = await _watched(settings, stack, failed)
        if settings.etcd is None:
            identity = standalone_identity(look(settings.data), settings.slice, settings.node)
            recovered = await recover(settings.data, identity, settings.delta_rows)
            broker = Broker(recovered, 1, failed, _options(settings))
            broker.start()
            await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        else:
            client = await stack.enter_async_context(EtcdClient(settings.etcd))
            broker = await _join(settings, client, servers, stack, tasks, failed)
        if not stop.is_set():
            await _serve(settings, broker, servers, watched, stop)
        await broker.stop(checkpoint=not failures, within_s=settings.stop_s)
    if failures:
        raise failures[0]


def _options(settings: Settings, lease_left_s: Callable[[], float] | None = None) -> BrokerOptions:
    options = BrokerOptions(settings.memory, settings.archive, settings.archive_every_s)
    return options if lease_left_s is None else replace(options, lease_left_s=lease_left_s)


async def _watched(settings: Settings, stack: AsyncExitStack, failed: OnFailure) -> Watched | None:
    if not settings.http:
        return None
    # Here, so that a node without HTTP does not carry its 15 MB.
    from shoal_slice_node.adapters.http import watched_over

    return await stack.enter_async_context(watched_over(settings.http, failed))


async def _join(
    settings: Settings,
    client: EtcdClient,
    servers: Servers,
    stack: AsyncExitStack,
    tasks: Tasks,
    failed: OnFailure,
) -> Broker:
    def lost() -> None:
        failed("lease", ShoalError(f"node {settings.node} lost its lease: it may no longer serve"))

    record = NodeRecord(settings.node, servers.address, settings.slice)
    recovered = await recover(settings.data, None, settings.delta_rows)
    registration, slice_record = await lead_slice(client, settings.cluster, record, lost)
    stack.push_async_callback(registration.end)
    broker = Broker(recovered, slice_record.epoch, failed, _options(settings, lambda: registration.lease.left_s))
    broker.start()
    known = asyncio.Event()
    tasks.start("map", follow_map(client, settings.cluster, settings.slice, broker, known))
    await known.wait()
    return broker


async def _serve(
    settings: Settings, broker: Broker, servers: Servers, watched: Watched | None, stop: asyncio.Event
) -> None:
    figures = Figures(broker, settings.slice, settings.node)
    servers.add(broker, figures, settings.data / STORE_FOLDER)
    # Objects loaded so far are long-lived: the collector need not look at them again. New ones are mostly freed by
    # reference counting.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await servers.start()
    facts: dict[str, str | int] = {"slice": settings.slice, "node": settings.node, "lsn": broker.commit.applied_lsn}
    if watched is not None:
        watched.serving(figures)
        facts["http"] = watched.address
    server_process.say_ready(address=servers.address, admin=servers.admin_address, **facts)
    await stop.wait()
    if watched is not None:
        watched.stopping()
    await broker.checkpoint_ahead(settings.stop_s / 2)
    await servers.stop(STOP_S)


def settings_of(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="shoal_slice_node", description=__doc__)
    parser.add_argument("--slice", required=True, metavar="NAME")
    parser.add_argument("--node", required=True, metavar="NAME")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 takes a free one")
    parser.add_argument(
        "--advertise", default="", metavar="HOST:PORT", help="where clients reach this node, if not where it listens"
    )
    parser.add_argument(
        "--admin-listen", default="", metavar="HOST:PORT",
        help="where AdminService and BulkService listen, if not with the rest",
    )  # fmt: skip
    parser.add_argument("--admin-advertise", default="", metavar="HOST:PORT", help="where they are reached")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="journal and store")
    parser.add_argument(
        "--accept-empty", action="store_true",
        help="begin without the data that etcd's record names, or with an old copy of it: what is missing is then gone",
    )  # fmt: skip
    parser.add_argument("--cluster", default="", metavar="NAME")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--etcd", metavar=ENDPOINTS_METAVAR, help="etcd's endpoints")
    where.add_argument("--standalone", action="store_true", help="no cluster: own every partition")
    add_etcd_arguments(parser)
    parser.add_argument(
        "--delta-rows",
        type=int,
        default=DELTA_ROWS_MAX,
        metavar="N",
        help="rows changed before a checkpoint begins (default %(default)s)",
    )
    parser.add_argument(
        "--memory-mib", type=int, default=0, metavar="N",
        help="what this process may use, besides its checkpointer; 0: a quarter of the machine's memory",
    )  # fmt: skip
    parser.add_argument(
        "--stop-s", type=float, default=CHECKPOINT_STOP_S, metavar="S",
        help="how long a clean stop may take before it leaves the rest to the journal (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="DIR",
        help="closed journal segments go to DIR/SLICE/NODE before they are deleted",
    )
    parser.add_argument(
        "--archive-every", type=float, default=ARCHIVE_EVERY_S_DEFAULT, metavar="S",
        help="a segment older than this is archived though it is not full; 0: none (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--http", default="", metavar="HOST:PORT", help="health and metrics; port 0 takes a free one")
    given = parser.parse_args(arguments)
    try:
        for name, what in ((given.slice, "slice"), (given.node, "node")):
            check_record_name(name, what)
        etcd = None if given.standalone else _etcd(given)
        _check_advertised("--advertise", given.advertise or given.listen, given.advertise, alone=given.standalone)
        admin = given.admin_advertise or given.admin_listen
        if admin:
            _check_advertised("--admin-advertise", admin, given.admin_advertise, alone=given.standalone)
        memory = plan_memory(given.memory_mib or memory_mib_default())
    except (ShoalError, OSError) as error:
        parser.error(str(error))
    return Settings(
        slice=given.slice,
        node=given.node,
        listen=given.listen,
        advertise=given.advertise,
        admin_listen=given.admin_listen,
        admin_advertise=given.admin_advertise,
        data=given.data,
        accept_empty=given.accept_empty,
        cluster=given.cluster,
        etcd=etcd,
        delta_rows=given.delta_rows,
        memory=memory,
        archive=given.archive and given.archive / given.slice / given.node,
        archive_every_s=given.archive_every,
        http=given.http,
        stop_s=given.stop_s,
    )


def _check_advertised(option: str, address: str, advertised: str, *, alone: bool) -> None:
    """Raises Malformed. A node that listens everywhere must say where it is, or no client would find it."""
    host, _, port = address.rpartition(":")
    if advertised and (not host or not port.isdecimal() or not 0 < int(port) < 1 << 16):
        raise Malformed(f"{option} {address} is not host:port", subject=address)
    if host in ("", "0.0.0.0", "[::]") and not alone:
        raise Malformed(f"{address} is every interface: say with {option} where clients reach this node")


def _etcd(given: argparse.Namespace) -> EtcdOptions:
    check_record_name(given.cluster, "cluster")
    return etcd_options(given, os.environ.get(PASSWORD_VARIABLE, ""))
