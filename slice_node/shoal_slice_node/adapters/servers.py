"""Runs the node's gRPC servers: one for clients and, if it has an address of its own, one for administration and bulk.

They live as long as the process, whichever role it has: so its ports stay its own, and clients' connections stay open.
They start before the node leads for the first time. While it does not lead, every call is refused.

Every program that can reach the second server may do everything. It is for operators' programs, behind a network
policy of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path

import grpc

from shoal_contract.addresses import port_of
from shoal_contract.errors import ShoalError, Unavailable
from shoal_runtime import grpc_server
from shoal_runtime.limits import CALL_HELD_BYTES, CONNECTION_HELD_BYTES
from shoal_runtime.open_files import raise_open_files
from shoal_runtime.unread import Unread
from shoal_slice_node.adapters.admin_service import admin_handlers
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.bulk_service import bulk_handlers
from shoal_slice_node.adapters.calls import Calls, CurrentHandlers
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.limits import (
    CONNECTIONS_FEW,
    OPEN_FILES_RESERVE,
    OPERATORS_CONNECTIONS_MAX,
    OPERATORS_WAITING_PARTS,
    SESSIONS_MAX,
    UNREAD_BYTES,
)
from shoal_slice_node.adapters.slice_service import slice_handlers

_log = logging.getLogger(__name__)

TRANSPORT = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", UNREAD_BYTES))


class Servers:
    """Holds the node's servers. `address`, `admin_address`: where clients and operators reach this node; both are equal
    if administration has no address of its own. `unread`: counts what clients sent and no handler has read."""

    def __init__(
        self,
        address: str,
        advertise: str,
        admin_address: str,
        admin_advertise: str,
        memory_bytes: int,
        unread: Unread | None = None,
    ) -> None:
        """Listens on these addresses; serves after `start`. `memory_bytes`: the process's memory budget. Raises OSError
        if it cannot listen on one."""
        room, waiting = _connections_max(memory_bytes), grpc_server.calls_waiting_max(memory_bytes)
        refusal = Unavailable("this node does not lead its slice yet: ask again", subject="slice")
        self._calls = Calls()
        self._for_clients = CurrentHandlers(refusal)
        self._clients, listened = _new_server(room, waiting, address, self._for_clients)
        ports = {port_of(listened): room}
        self._for_operators, self._operators, admin_listened = self._for_clients, self._clients, listened
        if admin_address:
            self._for_operators = CurrentHandlers(refusal)
            own_room = min(room, OPERATORS_CONNECTIONS_MAX)
            own_waiting = waiting // OPERATORS_WAITING_PARTS
            self._operators, admin_listened = _new_server(own_room, own_waiting, admin_address, self._for_operators)
            ports[port_of(admin_listened)] = own_room
        self.address = advertise or listened
        self.admin_address = admin_advertise or admin_listened if admin_address else self.address
        self.unread = unread or Unread()
        self.unread.ports = ports
        self._started = False

    def serve(self, broker: Broker, figures: Figures, store_folder: Path) -> None:
        """Lets calls reach the broker, until `refuse`."""

        def answers_waited_for() -> bool:
            return broker.answers.waiting > 0

        alone = self._for_operators is self._for_clients
        admission = Admission(self.unread, answers_waited_for)
        of_operators = admission if alone else Admission(self.unread, answers_waited_for)
        for_clients = slice_handlers(broker, admission)
        for_operators = (
            admin_handlers(broker, figures, of_operators),
            *bulk_handlers(broker, store_folder, of_operators),
        )
        self._calls = Calls()
        self._for_clients.serve((*for_clients, *for_operators) if alone else for_clients, self._calls)
        if not alone:
            self._for_operators.serve(for_operators, self._calls)

    async def refuse(self, cut_off: ShoalError, refusal: ShoalError) -> None:
        """Ends all calls with `cut_off`, and refuses later ones with `refusal`. Returns when no handler uses the broker
        any more."""
        self._for_clients.refuse(refusal)
        self._for_operators.refuse(refusal)
        await self._calls.end(cut_off)

    async def start(self) -> None:
        """Begins to take calls. Must be called once: servers that were stopped cannot start again."""
        assert not self._started
        self._started = True
        for server in {self._clients, self._operators}:
            await server.start()

    async def stop(self, grace_s: float) -> None:
        """Ends every call; calls that are under way have `grace_s` to finish."""
        if self._started:
            for server in {self._clients, self._operators}:
                await server.stop(grace_s)


def _new_server(
    connections_max: int, waiting_max: int, address: str, handlers: CurrentHandlers
) -> tuple[grpc.aio.Server, str]:
    """Returns a server, and the address on which it listens."""
    connections = ("grpc.max_allowed_incoming_connections", connections_max)
    options = (*TRANSPORT, connections)
    server = grpc_server.new_server(calls_max=SESSIONS_MAX, waiting_max=waiting_max, options=options)
    server.add_generic_rpc_handlers((handlers,))
    return server, grpc_server.listen(server, address)


def _connections_max(memory_bytes: int) -> int:
    """Returns how many connections the process takes: as many as it has open files for, besides the files that it must
    open itself, and as many as its memory budget holds with a session on each. Where only few files are allowed, half
    of them are for connections. At most SESSIONS_MAX."""
    files = raise_open_files()
    room = max(files - OPEN_FILES_RESERVE, files // 2)
    wanted = min(SESSIONS_MAX, memory_bytes // (CONNECTION_HELD_BYTES + CALL_HELD_BYTES))
    if room < wanted:
        _log.log(
            logging.INFO if room < CONNECTIONS_FEW else logging.DEBUG,
            "gRPC takes %d connections at a time, not %d, as this process may open no more files: raise ulimit -n for"
            " more",
            *(room, wanted),
        )
    return min(room, wanted)
