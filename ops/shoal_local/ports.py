"""Finds free TCP ports of loopback for a local cluster's servers, and the process that has a taken port.

Belongs here: ports. Does not: which server listens there, and where that is remembered (folder.py).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from shoal_contract.errors import Conflict, Unavailable
from shoal_local import limits

HOST: Final = "127.0.0.1"
_LISTENS: Final = "0A"
"""The state of a listening socket in /proc/net/tcp: TCP_LISTEN of the kernel's tcp_states.h."""


def free_port(taken: Collection[int] = ()) -> int:
    """Returns a free port that is not in `taken`, at random: clusters that start together rarely choose the same.

    Raises Unavailable.
    """
    for _ in range(limits.PORT_ATTEMPTS_MAX):
        port = secrets.choice(limits.PORTS)
        if port not in taken and is_free(port):
            return port
    raise Unavailable(f"no free port found from {limits.PORTS.start} on", subject="ports")


def is_free(port: int, host: str = HOST) -> bool:
    """Returns whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def check_free(address: str, option: str) -> None:
    """Raises Conflict if a server given `option` `address` could not listen there. Port 0 is always free."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if int(port) == 0 or is_free(int(port), HOST if host == "localhost" else host):
        return
    holder = holder_of(int(port))
    by = f" by process {holder}" if holder else ""
    raise Conflict(f"port {port} is taken{by}; choose another {option}", subject=address)


def holder_of(port: int) -> int | None:
    """Returns the process that listens at `port`, if /proc tells: on Linux, for processes that we may look at."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    if not sockets:
        return None
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in sockets:
                return int(link.parts[2])
        except OSError:
            continue  # The process has ended, or is another user's.
    return None


async def until_former_ended(ports: Collection[int], folder: Path) -> None:
    """Waits until no process of this data folder listens at these ports, FORMER_S at most. Where a starter was killed,
    its servers end by themselves, some seconds later."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.FORMER_S):
            while any(not is_free(port) and _is_of(folder, holder_of(port)) for port in ports):  # noqa: ASYNC110
                await asyncio.sleep(limits.FORMER_LOOK_S)


def _is_of(folder: Path, pid: int | None) -> bool:
    """Returns whether a process was started with a path in this folder, as the servers of a local cluster are."""
    try:
        begun_in = Path(f"/proc/{pid}/cwd").readlink()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # It has ended, or is unknown.
    return any((begun_in / os.fsdecode(word)).is_relative_to(folder.absolute()) for word in words if word)


def _listening(port: int) -> Iterator[str]:
    """Yields the inodes of the sockets that listen there: field 9 of the rows of /proc/net/tcp (proc(5))."""
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        if not table.is_file():
            continue
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
