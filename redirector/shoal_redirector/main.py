"""Wires the redirector: arguments and environment, which no other module reads, etcd, gRPC, HTTP.

`python -m shoal_redirector --listen HOST:PORT --http HOST:PORT --etcd HOST:PORT[,HOST:PORT] --cluster NAME`
Once it listens and has a map, it prints one line: {"ready": true, "grpc": "host:port", "http": "host:port"}.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_contract.addresses import port_of
from shoal_contract.errors import ShoalError
from shoal_coordination.arguments import ENDPOINTS_METAVAR, PASSWORD_VARIABLE, add_etcd_arguments, etcd_options
from shoal_coordination.client import EtcdClient
from shoal_coordination.keys import check_record_name
from shoal_coordination.options import EtcdOptions
from shoal_redirector import limits
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.etcd import follow
from shoal_redirector.adapters.grpc import RedirectorService
from shoal_redirector.adapters.http import new_application
from shoal_redirector.adapters.tally import Tally
from shoal_runtime import grpc_server, server_process
from shoal_runtime.http.guard import guarded
from shoal_runtime.http.server import HttpServer
from shoal_runtime.memory_guard import MemoryGuard
from shoal_runtime.process_memory import map_large_blocks
from shoal_runtime.stopping import Stopping
from shoal_runtime.tasks import Tasks
from shoal_runtime.unread import Unread

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    listen: str
    http: str
    cluster: str
    etcd: EtcdOptions
    memory_mib: int
    drain_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; argparse exits with 2 for bad arguments."""
    settings = _settings(arguments)
    map_large_blocks(limits.MAPPED_BLOCK_BYTES)
    return server_process.run(lambda stop: serve(settings, stop), "redirector", settings.drain_s)


async def serve(settings: Settings, stop: Stopping) -> None:
    """Serves until `stop`. Raises OSError if an address cannot be bound."""
    watchers_max = limits.watchers_max(settings.memory_mib)
    board, tally, unread = Board(), Tally(watchers_max), Unread()
    server = grpc_server.new_server(
        calls_max=watchers_max + limits.CALLS_BESIDE_WATCHERS,
        waiting_max=limits.CALLS_WAITING_MAX,
        options=_grpc_options(watchers_max),
    )
    server.add_generic_rpc_handlers((RedirectorService(board, tally, unread).handlers(),))
    grpc_address = grpc_server.listen(server, settings.listen)
    http = HttpServer(settings.http, limits.HTTP)
    budget_mib, high_mib = limits.MEMORY_FULL * settings.memory_mib, limits.MEMORY_HIGH * settings.memory_mib
    memory = MemoryGuard(unread, int(budget_mib) << 20, int(high_mib) << 20, grew_bytes_max=limits.GREW_BYTES_MAX)
    application = new_application(board, tally, lambda: stop.asked, memory)
    guard = guarded(application, settings.http, limits.HTTP, lambda: stop.asked)
    unread.ports = {port_of(grpc_address): watchers_max + limits.CALLS_BESIDE_WATCHERS}
    async with EtcdClient(settings.etcd) as client, Tasks("redirector", lambda name, error: stop.set()) as tasks:
        tasks.start("etcd", follow(client, settings.cluster, board))
        serving = tasks.start("http", http.run_until_stopped(guard))
        await server.start()
        memory.start()
        tasks.start("ready", _say_ready(board, grpc_address, http))
        await stop.wait()
        http.stop()
        await server.stop(limits.STOP_S)
        await asyncio.wait([serving], timeout=2 * limits.STOP_S)
        memory.stop()


def _grpc_options(watchers_max: int) -> grpc_server.Options:
    return (
        # A connection costs memory even without a call. Most clients watch; the rest is for those that only locate.
        ("grpc.max_allowed_incoming_connections", watchers_max + limits.CALLS_BESIDE_WATCHERS),
        ("grpc.max_receive_message_length", limits.REQUEST_BYTES_MAX),
        # Windows stay small, so a request that no handler reads holds no more here; reading a Locate opens its window.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", limits.UNREAD_BYTES),
    )


async def _say_ready(board: Board, grpc_address: str, http: HttpServer) -> None:
    await http.serving.wait()
    await board.after(None)
    server_process.say_ready(grpc=grpc_address, http=http.address)


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="shoal_redirector", description=__doc__)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", help="gRPC; port 0 takes a free one")
    parser.add_argument("--http", required=True, metavar="HOST:PORT", help="HTTP; port 0 takes a free one")
    parser.add_argument("--etcd", required=True, metavar=ENDPOINTS_METAVAR, help="etcd's endpoints")
    parser.add_argument("--cluster", required=True, metavar="NAME")
    parser.add_argument(
        "--memory-mib",
        type=int,
        default=limits.MEMORY_MIB_DEFAULT,
        metavar="N",
        help="memory that this process may take; it says how many may watch the map (default %(default)s)",
    )
    parser.add_argument(
        "--drain-s",
        type=float,
        default=0.0,
        metavar="S",
        help="on SIGTERM serve on for so long, not ready, before the ports close (default 0)",
    )
    add_etcd_arguments(parser)
    given = parser.parse_args(arguments)
    try:
        check_record_name(given.cluster, "cluster")
        limits.watchers_max(given.memory_mib)
        etcd = etcd_options(given, os.environ.get(PASSWORD_VARIABLE, ""))
    except (ShoalError, OSError) as error:
        parser.error(str(error))
    return Settings(given.listen, given.http, given.cluster, etcd, given.memory_mib, max(0.0, given.drain_s))
