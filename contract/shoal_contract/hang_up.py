"""Closing a client's connection from the server's side.

gRPC's aio server can end a call only once its client has taken what is being written, and keeps that in memory until
then; it has no way to cancel a call. Where a client does not read, its connection is shut down beneath gRPC
(shutdown(2)), which then ends every call of it and frees what they hold. Linux only; elsewhere nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

Address = tuple[str, int]
"""Address and port of a connection's other end."""

_FILES = Path("/proc/self/fd")
_MAPPED = "::ffff:"
"""An IPv4 address as a socket that takes both kinds tells it (RFC 4291, 2.5.5.2); gRPC names it without."""
_one_at_a_time = threading.Lock()
_due: deque[Address] = deque()


async def hang_up(peer: str) -> None:
    """Shuts the connection down whose client is `peer`, as gRPC names it: `ipv4:127.0.0.1:5000`, `ipv6:[::1]:5000`.
    An unknown one changes nothing. Many at once are looked for together."""
    await hang_up_on(address_of(peer))


async def hang_up_on(*addresses: Address) -> None:
    """The same, by address and port."""
    _due.extend(addresses)
    await asyncio.to_thread(_hang_up_due)


def _hang_up_due() -> None:
    with _one_at_a_time:
        addresses: set[Address] = set()
        while _due:  # More may come meanwhile.
            addresses.add(_due.popleft())
        if not addresses:
            return
        for address, found in sockets():
            if address in addresses:
                with contextlib.suppress(OSError):  # Not connected any more.
                    found.shutdown(socket.SHUT_RDWR)


def address_of(peer: str) -> Address:
    """Address and port of a client, as gRPC names it; of another kind of peer: none that exists."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else ("", 0)


def sockets() -> Iterator[tuple[Address, socket.socket]]:
    """The process's connections, each with the address and port of its other end; 10 us for each open file. Not to be
    kept or closed.

    Nothing is opened or closed: a process that closes any descriptor of a file loses its locks on that file (fcntl(2)),
    and LMDB's are such."""
    if not _FILES.is_dir():
        return
    for file in _FILES.iterdir():
        if not _is_socket(file):
            continue
        try:
            found = socket.socket(fileno=int(file.name))
        except OSError:
            continue  # No socket any more.
        try:
            name = found.getpeername()
            if isinstance(name, tuple):
                yield (str(name[0]).removeprefix(_MAPPED), int(name[1])), found
        except OSError:
            pass  # Not connected.
        finally:
            found.detach()


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except OSError:
        return False  # It is closed by now.
