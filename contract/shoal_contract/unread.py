"""What clients sent and no handler has read, by connection: what gRPC holds of it, and cannot be asked for.

HTTP/2's windows count the payload of DATA frames. gRPC keeps the whole buffer that a payload came in, so a client that
sends 24 bytes of it, 64 KiB of frames that are passed over, and so on, makes a server hold 64 KiB for each 24 bytes. So
the kernel is asked what came, and what handlers read is taken off, with what HTTP/2 puts around it. Each byte that is
taken off and did not come hides one that nobody reads: so little more is taken off than clients need, and what their
headers bring on top counts until the calls that it may belong to have ended: gRPC holds nothing else.
Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from shoal_contract.connections import Address, Connection, Connections
from shoal_contract.hang_up import address_of
from shoal_contract.limits import (
    UNREAD_ACCEPT_S,
    UNREAD_CALL_BYTES,
    UNREAD_ENDED_BYTES_LEAST,
    UNREAD_FREE_BYTES_PER_S,
    UNREAD_FREE_SENT_BYTES,
    UNREAD_LOOKS,
    UNREAD_PARTS_MAX,
    UNREAD_READ_BYTES,
    UNREAD_WROTE_BYTES,
)

Serve = Callable[[Any, Any], Awaitable[Any]]
"""A handler of gRPC: of requests, and the call's context."""

_FRAME_BYTES = 1 << 14
_FRAME_HEAD_BYTES = 9
"""A message comes in DATA frames of so much, each with such a head (RFC 9113, 4.1 and 6.5.2)."""


@dataclass(slots=True)
class Client:
    """One address and port of clients: nearly always one connection. `connections`: at the last look, by cookie.
    `read`: what was taken off by then. `unread`: bytes, at the last looks. `kernel`: bytes that the kernel held then.
    `came`: what came and was not taken off, and by when, oldest first; what was taken off later is negative. `burst`:
    the most that came between two looks, in bytes. `heard_s`: when a handler last read or wrote something.
    `rests_since_s`: the same, or when a call was last there. Both in seconds of time.monotonic."""

    address: Address
    connections: dict[int, Connection] = field(default_factory=dict)
    read: int = 0
    unread: deque[int] = field(default_factory=lambda: deque([0], UNREAD_LOOKS))
    kernel: deque[int] = field(default_factory=lambda: deque([0], UNREAD_LOOKS))
    came: deque[tuple[float, int]] = field(default_factory=deque)
    burst: int = 0
    heard_s: float = 0.0
    rests_since_s: float = 0.0

    def add(self, now_s: float, size_bytes: int, since_s: float) -> None:
        """`since_s`: what came before belongs to calls that have ended."""
        if size_bytes > 0 or self.came:
            self.came.append((now_s, size_bytes))
        while self.came and self.came[0][0] < since_s:
            self.came.popleft()
        if len(self.came) > UNREAD_PARTS_MAX:
            first, second = self.came.popleft(), self.came.popleft()
            self.came.appendleft((second[0], max(0, first[1]) + second[1]))
        total = 0
        for _, part in self.came:
            total = max(0, total + part)
        if not total:
            self.came.clear()
        self.unread.append(total)

    @property
    def standing(self) -> int:
        """What was unread at each of the last looks."""
        return min(self.unread) if len(self.unread) == UNREAD_LOOKS else 0

    @property
    def standing_kernel(self) -> int:
        """What the kernel held at each of the last looks: what is not sent stands there, what just goes does not."""
        return min(self.kernel) if len(self.kernel) == UNREAD_LOOKS else 0


class Unread:
    """Handlers tell of their calls, and of what they `read` and `wrote`; `look` asks the kernel, and is called from a
    thread; `clients` are what it found, on `ports`. What else a connection brings (pings, frames of no use) is let go
    of over time."""

    def __init__(self) -> None:
        self.ports: Collection[int] = ()
        """Of gRPC: others count what they hold."""
        self._read: Counter[str] = Counter()
        self._calls: dict[str, dict[object, float]] = {}
        """By client: when each call began that has not ended, the first first."""
        self.clients: dict[Address, Client] = {}
        self.kernel_bytes = 0
        """What the kernel held for all of them at the last look."""
        self.sent_bytes = 0
        """What was sent to all of them since then."""
        self._connections = Connections()
        self._looked_s = time.monotonic()
        self._looking = threading.Lock()

    @contextmanager
    def calling(self, peer: str) -> Iterator[None]:
        """Notes that a handler has a call of this connection, until the context ends."""
        calls, call = self._calls.setdefault(peer, {}), object()
        calls[call] = time.monotonic()
        try:
            yield
        finally:
            del calls[call]
            if not calls:
                self._calls.pop(peer, None)

    def counted(self, serve: Serve) -> Serve:
        """The same handler of a stream, told of."""

        async def calling(requests: Any, context: Any) -> Any:
            with self.calling(context.peer()):
                return await serve(requests, context)

        return calling

    def _since_s(self, peer: str, now_s: float) -> float:
        """Returns when the first call may have come that has not ended: a while before its handler began."""
        try:
            began_s = next(iter(self._calls.get(peer, {}).values()), now_s)
        except RuntimeError:  # It changed just now.
            began_s = 0.0
        return began_s - UNREAD_ACCEPT_S

    def read(self, peer: str, size_bytes: int, first: bool = False) -> None:
        """A handler has a message of this connection, named as gRPC names its client. `first`: of its call."""
        came = size_bytes + UNREAD_READ_BYTES + size_bytes // _FRAME_BYTES * _FRAME_HEAD_BYTES
        self._read[peer] += came + UNREAD_CALL_BYTES if first else came

    def wrote(self, peer: str, size_bytes: int) -> None:
        """Notes that a handler has given the connection a message: its client answers that it has room again."""
        self._read[peer] += UNREAD_WROTE_BYTES
        self.sent_bytes += size_bytes

    def answered(self, size_bytes: int) -> None:
        """Notes the answer of a call, which then ends."""
        self.sent_bytes += size_bytes

    def holds(self, peer: str) -> bool:
        """Whether something of this connection was unread at each of the last looks, more than headers and the like."""
        client = self.clients.get(address_of(peer))
        return client is not None and client.standing >= UNREAD_ENDED_BYTES_LEAST

    def look(self) -> None:
        """10 us for each open file of the process."""
        with self._looking:
            now_s = time.monotonic()
            self.sent_bytes = 0  # What is sent from now on may not be found.
            free_bytes = int((now_s - self._looked_s) * UNREAD_FREE_BYTES_PER_S)
            self._looked_s = now_s
            peers = {address_of(peer): peer for peer in (*list(self._read), *list(self._calls))}
            known = {cookie: one.address for one in self.clients.values() for cookie in one.connections}
            connections: dict[Address, dict[int, Connection]] = {}
            read: dict[Address, int] = {}
            for found in self._connections.look(self.ports, known):
                connections.setdefault(found.address, {})[found.cookie] = found
                # Of the same moment: a look takes long, and what comes and is read meanwhile is not unread.
                read[found.address] = self._read.get(peers.get(found.address, ""), 0)
            clients: dict[Address, Client] = {}
            for address, ones in connections.items():
                peer = peers.get(address, "")
                before_it = self.clients.get(address)
                client = clients[address] = self._client(before_it, address, ones, now_s)
                came = client.read - read[address]
                free = free_bytes
                for cookie, one in ones.items():
                    before = client.connections.get(cookie)
                    came += one.taken_bytes - (before.taken_bytes if before else 0)
                    free += (one.acked_bytes - (before.acked_bytes if before else 0)) // UNREAD_FREE_SENT_BYTES
                client.burst = max(client.burst, came + read[address] - client.read)
                if client is not before_it:
                    came = max(0, came)
                client.add(now_s, came - free, self._since_s(peer, now_s))
                client.kernel.append(sum(one.kernel_bytes for one in ones.values()))
                if client.read != read[address]:
                    client.heard_s = client.rests_since_s = now_s
                if peer in self._calls:
                    client.rests_since_s = now_s
                client.connections, client.read = ones, read[address]
            self.clients = clients
            self.kernel_bytes = sum(client.kernel[-1] for client in clients.values())
            for address in peers.keys() - clients.keys():  # Their connections are gone.
                self._read.pop(peers[address], None)

    @staticmethod
    def _client(before: Client | None, address: Address, connections: dict[int, Connection], now_s: float) -> Client:
        """Returns the client of the last look, or a new one. The port of a new one may have been another connection's,
        also since the last look: what was read of that one may hide what came on the new one by now, and no more."""
        if before is not None and before.connections.keys() & connections.keys():
            return before
        return Client(address, read=before.read if before else 0, heard_s=now_s, rests_since_s=now_s)

    def standing(self, least_bytes: int) -> list[tuple[int, Address]]:
        """Clients of which at least so much was unread at each of the last looks, most first."""
        found = [(one.standing, address) for address, one in self.clients.items()]
        return sorted((one for one in found if one[0] >= max(1, least_bytes)), reverse=True)

    def shut_doors(self, shut: bool) -> bool:
        """As Connections.shut_doors."""
        return self._connections.shut_doors(shut, self.ports)

    def hang_up(self, client: Client) -> None:
        """On all its connections of the last look; those that have ended since are let be."""
        for one in client.connections.values():
            self._connections.shut_down(one)
