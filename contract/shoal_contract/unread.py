"""What clients sent and no handler has read, by connection: what gRPC holds of it, and cannot be asked for.

HTTP/2's windows count the payload of DATA frames. gRPC keeps the whole buffer that a payload came in, so a client that
sends 24 bytes of it, 64 KiB of frames that are passed over, and so on, makes a server hold 64 KiB for each 24 bytes. So
the kernel is asked what came (tcp(7), TCP_INFO; struct tcp_info of linux/tcp.h), and what handlers read is taken off.
Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from shoal_contract.hang_up import Address, address_of, sockets
from shoal_contract.limits import (
    UNREAD_FREE_BYTES_PER_S,
    UNREAD_FREE_SENT_BYTES,
    UNREAD_LOOKS,
    UNREAD_READ_BYTES,
)

_TCP_INFO_BYTES = 136
_ACKED_AND_RECEIVED = 120
"""Offset of tcpi_bytes_acked, then tcpi_bytes_received: u64 of this machine's byte order."""


@dataclass(slots=True)
class _Client:
    """One address and port of clients: nearly always one connection. `totals`: bytes that the kernel received and the
    client acknowledged, of each of its sockets, by inode, at the last look. `unread`: bytes, at the last looks."""

    totals: dict[int, tuple[int, int]] = field(default_factory=dict)
    read: int = 0
    unread: deque[int] = field(default_factory=lambda: deque([0], UNREAD_LOOKS))


class Unread:
    """Handlers tell of what they `read`; `look` asks the kernel, and is called from a thread; then `standing` says who
    has most. What a connection's frames take besides messages (headers, windows, pings) is let go of over time."""

    def __init__(self) -> None:
        self._read: Counter[str] = Counter()
        self._clients: dict[Address, _Client] = {}
        self._looked_s = time.monotonic()
        self._looking = threading.Lock()

    def read(self, peer: str, size_bytes: int) -> None:
        """A handler has a message of this connection, named as gRPC names its client."""
        self._read[peer] += size_bytes + UNREAD_READ_BYTES

    def look(self) -> None:
        """10 us for each open file of the process."""
        with self._looking:
            now_s = time.monotonic()
            free_bytes = int((now_s - self._looked_s) * UNREAD_FREE_BYTES_PER_S)
            self._looked_s = now_s
            read = {address_of(peer): (peer, size_bytes) for peer, size_bytes in list(self._read.items())}
            sockets_of: dict[Address, dict[int, tuple[int, int]]] = {}
            for address, inode, received, acked in _received():
                sockets_of.setdefault(address, {})[inode] = received, acked
            found: dict[Address, _Client] = {}
            for address, totals in sockets_of.items():
                one = found[address] = self._clients.get(address) or _Client()
                read_bytes = read.pop(address, ("", 0))[1]
                came = one.read - read_bytes
                free = free_bytes
                for inode, (received, acked) in totals.items():
                    before = one.totals.get(inode, (0, 0))
                    came += received - before[0]
                    free += (acked - before[1]) // UNREAD_FREE_SENT_BYTES
                one.unread.append(max(0, one.unread[-1] + came - free))
                one.totals, one.read = totals, read_bytes
            self._clients = found
            for peer, _ in read.values():  # Their connections are gone.
                del self._read[peer]

    def standing(self, least_bytes: int) -> list[tuple[int, Address]]:
        """Clients of which at least so much was unread at each of the last looks, most first."""
        ready = [
            (min(one.unread), address) for address, one in self._clients.items() if len(one.unread) == UNREAD_LOOKS
        ]
        return sorted((one for one in ready if one[0] >= least_bytes), reverse=True)

    @property
    def clients(self) -> int:
        """How many there were at the last look."""
        return len(self._clients)


def _received() -> Iterator[tuple[Address, int, int, int]]:
    """Of each connection its inode, and the bytes that the process has taken from the kernel and the client has
    acknowledged."""
    for address, found in sockets():
        try:
            info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            (waiting,) = struct.unpack("i", fcntl.ioctl(found.fileno(), termios.FIONREAD, bytes(4)))
            inode = os.fstat(found.fileno()).st_ino
        except OSError:
            continue
        if len(info) == _TCP_INFO_BYTES:
            acked, received = struct.unpack_from("=QQ", info, _ACKED_AND_RECEIVED)
            yield address, inode, received - waiting, acked
