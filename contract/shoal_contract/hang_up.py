"""Closing a client's connection from the server's side.

gRPC's aio server can end a call only once its client has taken what is being written, and keeps that in memory until
then; it has no way to cancel a call. Where a client does not read, its connection is shut down beneath gRPC
(shutdown(2)), which then ends every call of it and frees what they hold. Linux only; elsewhere nothing happens.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from pathlib import Path
from urllib.parse import unquote

_FILES = Path("/proc/self/fd")
_MAPPED = "::ffff:"
"""An IPv4 address as a socket that takes both kinds tells it (RFC 4291, 2.5.5.2); gRPC names it without."""
_one_at_a_time = threading.Lock()
_due: deque[str] = deque()


async def hang_up(peer: str) -> None:
    """Shuts the connection down whose client is `peer`, as gRPC names it: `ipv4:127.0.0.1:5000`, `ipv6:[::1]:5000`.
    An unknown one changes nothing. Many at once are looked for together."""
    _due.append(peer)
    await asyncio.to_thread(_hang_up_due)


def _hang_up_due() -> None:
    """10 us for each open file of the process."""
    with _one_at_a_time:
        places: set[tuple[str, int]] = set()
        while _due:  # More may come meanwhile.
            places.add(_place_of(_due.popleft()))
        if not places or not _FILES.is_dir():
            return
        for file in _FILES.iterdir():
            if _is_socket(file):
                _shut_down(int(file.name), places)


def _place_of(peer: str) -> tuple[str, int]:
    """Address and port; of another kind of peer: none that exists."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdecimal() else ("", 0)


def _is_socket(file: Path) -> bool:
    try:
        return str(file.readlink()).startswith("socket:")
    except OSError:
        return False  # It is closed by now.


def _shut_down(number: int, places: set[tuple[str, int]]) -> None:
    """Nothing is opened or closed: a process that closes any descriptor of a file loses its locks on that file
    (fcntl(2)), and LMDB's are such."""
    try:
        found = socket.socket(fileno=number)
    except OSError:
        return  # No socket any more.
    try:
        host, port = found.getpeername()[:2]
        if (host.removeprefix(_MAPPED), port) in places:
            found.shutdown(socket.SHUT_RDWR)
    except (OSError, ValueError):
        pass  # Not connected, or of another kind.
    finally:
        found.detach()
