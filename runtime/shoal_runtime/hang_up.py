"""Closes a client's connection from the server's side.

gRPC's aio server cannot cancel a call. It can end a call only once the client has taken what is being written, and
keeps that in memory until then. So the connection of a client that does not read is shut down beneath gRPC
(shutdown(2)). gRPC then ends every call of the connection and frees what they hold. Linux only; elsewhere nothing
happens.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from urllib.parse import unquote

from shoal_runtime.connections import Address, Connections

_one_at_a_time = threading.Lock()
_connections = Connections()
_due: deque[Address] = deque()


async def hang_up(peer: str) -> None:
    """Shuts down the connection of the client `peer`, as gRPC names it: `ipv4:127.0.0.1:5000`, `ipv6:[::1]:5000`.
    An unknown peer changes nothing. Many peers at once are looked for together."""
    _due.append(address_of(peer))
    await asyncio.to_thread(_hang_up_due)


def _hang_up_due() -> None:
    with _one_at_a_time:
        addresses: set[Address] = set()
        while _due:  # More may come meanwhile.
            addresses.add(_due.popleft())
        if not addresses:
            return
        for connection in _connections.look():
            if connection.address in addresses:
                _connections.shut_down(connection)


def address_of(peer: str) -> Address:
    """Returns the address and port in gRPC's name of a client. The scope of a link-local address is left out, because
    the kernel does not give it. For another kind of peer, returns an address that does not exist."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (host.strip("[]").partition("%")[0], int(port)) if port.isdecimal() else ("", 0)
