"""Runs the node's gRPC servers: one for clients and, if it has an address of its own, one for administration and bulk.

Every program that can reach the second server may do everything. It is for operators' programs, behind a network
policy of its own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import grpc

from shoal_runtime import grpc_server
from shoal_runtime.limits import CALL_HELD_BYTES, CONNECTION_HELD_BYTES
from shoal_runtime.open_files import raise_open_files
from shoal_slice_node.adapters.admin_service import admin_handlers
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.bulk_service import bulk_handlers
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.limits import (
    OPEN_FILES_RESERVE,
    OPERATORS_CONNECTIONS_MAX,
    OPERATORS_WAITING_PARTS,
    SESSIONS_MAX,
    UNREAD_BYTES,
)
from shoal_slice_node.adapters.slice_service import slice_handlers

_log = logging.getLogger(__name__)

TRANSPORT = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", UNREAD_BYTES))


@dataclass(frozen=True, slots=True)
class Servers:
    """Holds the node's servers. `address`, `admin_address`: where clients and operators reach this node; both are equal
    if administration has no address of its own. `ports`: how many connections each port takes."""

    clients: grpc.aio.Server
    operators: grpc.aio.Server
    address: str
    admin_address: str
    ports: dict[int, int]

    @classmethod
    def listen(
        cls, address: str, advertise: str, admin_address: str, admin_advertise: str, memory_bytes: int
    ) -> Servers:
        """Returns servers that listen on these addresses. `memory_bytes`: the process's memory budget. Raises OSError
        if they cannot listen on one."""
        room, waiting = _connections_max(memory_bytes), grpc_server.calls_waiting_max(memory_bytes)
        clients = _new_server(room, waiting)
        listened = grpc_server.listen(clients, address)
        port = int(listened.rpartition(":")[2])
        if not admin_address:
            return cls(clients, clients, advertise or listened, advertise or listened, {port: room})
        operators_room = min(room, OPERATORS_CONNECTIONS_MAX)
        operators = _new_server(operators_room, waiting // OPERATORS_WAITING_PARTS)
        admin_listened = grpc_server.listen(operators, admin_address)
        ports = {port: room, int(admin_listened.rpartition(":")[2]): operators_room}
        return cls(clients, operators, advertise or listened, admin_advertise or admin_listened, ports)

    def add(self, broker: Broker, figures: Figures, store_folder: Path) -> None:
        """Adds the services; called before `start`."""
        unread = broker.watchman.unread
        unread.ports = self.ports

        def answers_waited_for() -> bool:
            return broker.answers.waiting > 0

        admission = Admission(unread, answers_waited_for)
        self.clients.add_generic_rpc_handlers(tuple(slice_handlers(broker, admission)))
        operators = admission if self.operators is self.clients else Admission(unread, answers_waited_for)
        self.operators.add_generic_rpc_handlers(
            (admin_handlers(broker, figures, operators), *bulk_handlers(broker, store_folder, operators))
        )

    async def start(self) -> None:
        for server in {self.clients, self.operators}:
            await server.start()

    async def stop(self, grace_s: float) -> None:
        """Ends every call; calls that are under way have `grace_s` to finish."""
        for server in {self.clients, self.operators}:
            await server.stop(grace_s)


def _new_server(connections_max: int, waiting_max: int) -> grpc.aio.Server:
    connections = ("grpc.max_allowed_incoming_connections", connections_max)
    return grpc_server.new_server(calls_max=SESSIONS_MAX, waiting_max=waiting_max, options=(*TRANSPORT, connections))


def _connections_max(memory_bytes: int) -> int:
    """Returns how many connections the process takes: as many as it has open files for, besides the files that it must
    open itself, and as many as its memory budget holds with a session on each. Where only few files are allowed, half
    of them are for connections. At most SESSIONS_MAX."""
    files = raise_open_files()
    room = max(files - OPEN_FILES_RESERVE, files // 2)
    wanted = min(SESSIONS_MAX, memory_bytes // (CONNECTION_HELD_BYTES + CALL_HELD_BYTES))
    if room < wanted:
        _log.info(
            "gRPC takes %d connections at a time, not %d, as this process may open no more files: raise ulimit -n for"
            " more",
            *(room, wanted),
        )
    return min(room, wanted)
