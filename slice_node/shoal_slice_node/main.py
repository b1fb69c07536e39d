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
import secrets
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from shoal_contract import grpc_server, server_process
from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.tasks import OnFailure, Tasks, run_until
from shoal_contract.wire.admin_pb2_grpc import add_AdminServiceServicer_to_server
from shoal_contract.wire.slice_pb2_grpc import add_SliceServiceServicer_to_server
from shoal_coordination.arguments import ENDPOINTS_METAVAR, PASSWORD_VARIABLE, add_etcd_arguments, etcd_options
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.keys import check_record_name
from shoal_coordination.nodes import Registration
from shoal_coordination.options import EtcdOptions
from shoal_coordination.records import NodeRecord, SliceRecord
from shoal_coordination.slice_data import ClaimedData
from shoal_slice_node.adapters.admin_service import AdminService
from shoal_slice_node.adapters.broker import STORE_FOLDER, Broker
from shoal_slice_node.adapters.bulk_service import bulk_handlers
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.membership import follow_map, lead_slice
from shoal_slice_node.adapters.slice_service import SliceService
from shoal_slice_node.limits import DELTA_ROWS_MAX, GC_THRESHOLDS, SESSIONS_MAX, STOP_S

if TYPE_CHECKING:
    from shoal_slice_node.adapters.http import Watched

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """`etcd` None: standalone. `advertise` empty: the address that is listened on. `archive`: of this node alone.
    `http` empty: none."""

    slice: str
    node: str
    listen: str
    advertise: str
    data: Path
    cluster: str
    etcd: EtcdOptions | None
    delta_rows: int
    archive: Path | None
    http: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; argparse exits with 2 for bad arguments."""
    settings = _settings(arguments)
    return server_process.run(lambda stop: serve(settings, stop), f"slice {settings.slice}")


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until `stop`, or until something fails for good: then raises it."""
    failures: list[BaseException] = []

    def failed(_: str, error: BaseException) -> None:
        failures.append(error)
        stop.set()

    settings.data.mkdir(parents=True, exist_ok=True)
    server = grpc_server.new_server(calls_max=SESSIONS_MAX)
    address = grpc_server.listen(server, settings.listen)
    address = settings.advertise or address
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(Tasks(settings.slice, failed))
        watched = await _watched(settings, stack, failed)
        if settings.etcd is None:
            broker = await Broker.open(settings.data, 1, failed, settings.delta_rows, settings.archive)
            broker.start()
            await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        else:
            client = await stack.enter_async_context(EtcdClient(settings.etcd))
            joined = await _join(settings, client, address, stack, tasks, failed, stop)
            if joined is None:
                return
            broker = joined
        await _serve(settings, broker, server, address, watched, stop)
        await broker.stop(checkpoint=not failures)
    if failures:
        raise failures[0]


async def _watched(settings: Settings, stack: AsyncExitStack, failed: OnFailure) -> Watched | None:
    if not settings.http:
        return None
    # Here, so that a node without HTTP does not carry its 15 MB.
    from shoal_slice_node.adapters.http import watched_over

    return await stack.enter_async_context(watched_over(settings.http, failed))


async def _join(
    settings: Settings,
    client: EtcdClient,
    address: str,
    stack: AsyncExitStack,
    tasks: Tasks,
    failed: OnFailure,
    stop: asyncio.Event,
) -> Broker | None:
    """Returns None if it is stopped before it leads its slice."""

    def lost() -> None:
        failed("lease", ShoalError(f"node {settings.node} lost its lease: it may no longer serve"))

    record = NodeRecord(settings.node, address, settings.slice)
    claiming = run_until(stop, _claim(settings, client, record, lost))
    if (led := await claiming) is None:
        return None
    registration, slice_record = led
    stack.push_async_callback(registration.end)
    broker = await Broker.open(settings.data, slice_record.epoch, failed, settings.delta_rows, settings.archive)
    broker.start()
    known = asyncio.Event()
    tasks.start("map", follow_map(client, settings.cluster, settings.slice, broker, known))
    await known.wait()
    return broker


async def _claim(
    settings: Settings, client: EtcdClient, record: NodeRecord, lost: Callable[[], None]
) -> tuple[Registration, SliceRecord]:
    view = await first_view(client, settings.cluster)
    known = view.slices.get(settings.slice, SliceRecord(settings.slice))
    data = ClaimedData(known.incarnation or secrets.token_hex(16), 0, replaces=True)
    return await lead_slice(client, settings.cluster, record, data, lost)


async def _serve(
    settings: Settings,
    broker: Broker,
    server: grpc.aio.Server,
    address: str,
    watched: Watched | None,
    stop: asyncio.Event,
) -> None:
    add_SliceServiceServicer_to_server(SliceService(broker), server)
    figures = Figures(broker, settings.slice, settings.node)
    add_AdminServiceServicer_to_server(AdminService(broker, figures), server)
    server.add_generic_rpc_handlers((bulk_handlers(broker, settings.data / STORE_FOLDER),))
    # What was loaded lives on: the collector need not look at it again. What comes is freed by counting, mostly.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await server.start()
    facts: dict[str, str | int] = {"slice": settings.slice, "node": settings.node, "lsn": broker.commit.applied_lsn}
    if watched is not None:
        watched.serving(figures)
        facts["http"] = watched.address
    server_process.say_ready(address=address, **facts)
    await stop.wait()
    if watched is not None:
        watched.stopping()
    await server.stop(STOP_S)


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="shoal_slice_node", description=__doc__)
    parser.add_argument("--slice", required=True, metavar="NAME")
    parser.add_argument("--node", required=True, metavar="NAME")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="port 0 takes a free one")
    parser.add_argument(
        "--advertise", default="", metavar="HOST:PORT", help="where clients reach this node, if not where it listens"
    )
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="journal and store")
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
        "--archive",
        type=Path,
        metavar="DIR",
        help="closed journal segments go to DIR/SLICE/NODE before they are deleted",
    )
    parser.add_argument("--http", default="", metavar="HOST:PORT", help="health and metrics; port 0 takes a free one")
    given = parser.parse_args(arguments)
    try:
        for name, what in ((given.slice, "slice"), (given.node, "node")):
            check_record_name(name, what)
        etcd = None if given.standalone else _etcd(given)
        _check_advertised(given.advertise or given.listen, given.advertise, alone=given.standalone)
    except (ShoalError, OSError) as error:
        parser.error(str(error))
    archive = given.archive and given.archive / given.slice / given.node
    where_to = (given.listen, given.advertise, given.data, given.cluster)
    return Settings(given.slice, given.node, *where_to, etcd, given.delta_rows, archive, given.http)


def _check_advertised(address: str, advertised: str, *, alone: bool) -> None:
    """Raises Malformed. A node that listens everywhere must say where it is, or no client would find it."""
    host, _, port = address.rpartition(":")
    if advertised and (not host or not port.isdecimal() or not 0 < int(port) < 1 << 16):
        raise Malformed(f"--advertise {address} is not host:port", subject=address)
    if host in ("", "0.0.0.0", "[::]") and not alone:
        raise Malformed(f"{address} is every interface: say with --advertise where clients reach this node")


def _etcd(given: argparse.Namespace) -> EtcdOptions:
    check_record_name(given.cluster, "cluster")
    return etcd_options(given, os.environ.get(PASSWORD_VARIABLE, ""))
