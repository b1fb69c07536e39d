"""Counts the bytes that clients sent and no handler has read, by connection. gRPC holds them, but cannot be asked.

HTTP/2's windows count the payload of DATA frames. gRPC keeps the whole buffer that a payload came in. So a client that
sends 24 bytes of payload, then 64 KiB of frames that are ignored, and so on, makes a server hold 64 KiB for each 24
bytes. Therefore the kernel is asked how much came, and what handlers read is subtracted, with the bytes that HTTP/2
puts around it. Each byte that is subtracted and did not come hides one that no handler reads. So little more is
subtracted than clients need. What headers need differs: the part that is in doubt counts where memory is short and
it is not known whose it is (endings.py). If headers bring more than that, the excess counts until the calls that it may
belong to have ended, because gRPC holds nothing of ended calls. Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from shoal_runtime.connections import Address, Connection, Connections
from shoal_runtime.hang_up import address_of
from shoal_runtime.limits import (
    BURST_MESSAGE_BYTES_MAX,
    BURST_S,
    UNREAD_ACCEPT_S,
    UNREAD_CALL_BYTES,
    UNREAD_CALL_BYTES_LEAST,
    UNREAD_ENDED_BYTES_LEAST,
    UNREAD_FREE_BYTES_PER_S,
    UNREAD_FREE_SENT_BYTES,
    UNREAD_LOOKS,
    UNREAD_PARTS_MAX,
    UNREAD_READ_BYTES,
    UNREAD_READ_PARTS,
    UNREAD_SHARE_BYTES_MAX,
    UNREAD_WROTE_BYTES,
)

Serve = Callable[[Any, Any], Awaitable[Any]]
"""A gRPC handler. It takes requests and the call's context."""

_FRAME_BYTES = 1 << 14
_FRAME_HEAD_BYTES = 9
_WINDOW_BYTES = 1 << 16
_PREFIX_BYTES = 5
"""A message comes behind a prefix of gRPC, in DATA frames of so many bytes, each with a head of so many, and in one
frame more where a window of so many bytes ends (RFC 9113, 4.1, 5.2.1 and 6.5.2)."""


@dataclass(slots=True)
class _Burst:
    """Says what handlers read of a client since a time in seconds of time.monotonic, and the most at once so far."""

    since_s: float = 0.0
    now_bytes: int = 0
    most_bytes: int = 0


_NO_BURST: Final = _Burst()


@dataclass(slots=True)
class Client:
    """Keeps what is known of one address and port of clients, which is nearly always one connection.

    `connections`: those at the last look, by cookie. `read`: the bytes subtracted by then; `read_before`: those of an
    earlier connection on its port. `unread`: the unread bytes at each of the last looks. `kernel`: the bytes that the
    kernel held at these looks. `came`: when bytes came that were not subtracted, and how many, oldest first; a negative
    number where more was subtracted later. `headers`: likewise, what was subtracted for headers of calls beyond the
    least that they take; `doubtful`: their sum, which may as well be something else. `calls_read`: the calls that
    handlers had read by then. `burst`: the most bytes that came at once, as far as that is known.
    `calls`: the calls that handlers had at the last look, which are streams or wait for their answer. `looks`: the
    looks that found it. `rests_since_s`: when a handler last read or wrote something, or a call was last there, in
    seconds of time.monotonic. `port`: the one of this process that it came to; 0 if that is not known.
    `since_s`: when a look first found it, likewise. `ended`: whether it was hung up on."""

    address: Address
    connections: dict[int, Connection] = field(default_factory=dict)
    read: int = 0
    unread: tuple[int, ...] = (0,)
    kernel: tuple[int, ...] = (0,)
    came: list[tuple[float, int]] = field(default_factory=list)
    headers: list[tuple[float, int]] = field(default_factory=list)
    doubtful: int = 0
    calls_read: int = 0
    read_before: int = 0
    burst: int = 0
    calls: int = 0
    looks: int = 0
    rests_since_s: float = 0.0
    port: int = 0
    since_s: float = 0.0
    ended: bool = False

    def add(self, now_s: float, size_bytes: int, since_s: float) -> None:
        """Adds the bytes of a look. Bytes that came before `since_s` are dropped: they belong to ended calls."""
        self.unread = (*self.unread, _added(self.came, now_s, size_bytes, since_s))[-UNREAD_LOOKS:]

    def doubt(self, now_s: float, calls_read: int, since_s: float) -> None:
        """Adds the headers of the calls of a look: they may be as many bytes of something that no handler reads."""
        more = max(0, calls_read - self.calls_read) * (UNREAD_CALL_BYTES - UNREAD_CALL_BYTES_LEAST)
        self.calls_read = calls_read
        self.doubtful = _added(self.headers, now_s, more, since_s)

    @property
    def standing(self) -> int:
        """Returns the bytes that were unread at each of the last looks, less a small share of what was read: how many
        frames that came in is not known."""
        least = min(self.unread) if len(self.unread) == UNREAD_LOOKS else 0
        return max(0, least - min((self.read - self.read_before) // UNREAD_READ_PARTS, UNREAD_SHARE_BYTES_MAX))

    @property
    def standing_kernel(self) -> int:
        """Returns the bytes that the kernel held at each of the last looks. Unsent bytes that stay there count, bytes
        that are just being sent do not."""
        return min(self.kernel) if len(self.kernel) == UNREAD_LOOKS else 0


def _added(parts: list[tuple[float, int]], now_s: float, size_bytes: int, since_s: float) -> int:
    """Adds the bytes of a look to those of earlier looks, drops those from before `since_s`, and returns the sum."""
    if size_bytes > 0 or parts:
        parts.append((now_s, size_bytes))
    while parts and parts[0][0] < since_s:
        parts.pop(0)
    if len(parts) > UNREAD_PARTS_MAX:
        first, second = parts[:2]
        parts[:2] = [(second[0], max(0, first[1]) + second[1])]
    total = 0
    for _, part in parts:
        total = max(0, total + part)
    if not total:
        parts.clear()
    return total


class Unread:
    """Counts the unread bytes of each client. Handlers report their calls, and what they `read` and `wrote`. `look`
    asks the kernel, and is called from a thread; `clients` are those it found on `ports`. Other bytes of a connection
    (pings, useless frames) are subtracted over time."""

    def __init__(self) -> None:
        self.ports: Mapping[int, int] = {}
        """The ports of gRPC, each with the number of connections that it takes. Other servers count what they hold."""
        self._read: Counter[str] = Counter()
        self._calls_read: Counter[str] = Counter()
        self._bursts: dict[str, _Burst] = {}
        self._calls: dict[str, dict[object, float]] = {}
        """The times when calls began that have not ended, by client; the oldest first."""
        self.clients: dict[Address, Client] = {}
        self.kernel_bytes = 0
        """The bytes that the kernel held for all clients at the last look."""
        self.holding: Sequence[Address] = ()
        """The clients of which more than headers was unread at each of the last looks."""
        self.calls_begun = 0
        """How many calls handlers ever began."""
        self.sent_bytes = 0
        """The bytes that were sent to all clients since the last look."""
        self._connections = Connections()
        self._looked_s = time.monotonic()
        self._looking = threading.Lock()

    @contextmanager
    def calling(self, peer: str) -> Iterator[None]:
        """Notes that a handler has a call of this connection, until the context ends."""
        self.calls_begun += 1
        calls, call = self._calls.setdefault(peer, {}), object()
        calls[call] = time.monotonic()
        try:
            yield
        finally:
            del calls[call]
            if not calls:
                self._calls.pop(peer, None)

    def counted(self, serve: Serve) -> Serve:
        """Returns the same handler of a stream, with its calls noted."""

        async def calling(requests: Any, context: Any) -> Any:
            with self.calling(context.peer()):
                return await serve(requests, context)

        return calling

    def _since_s(self, peer: str, now_s: float) -> float:
        """Returns when the oldest call that has not ended may have come: UNREAD_ACCEPT_S before its handler began."""
        try:
            began_s = next(iter(self._calls.get(peer, {}).values()), now_s)
        except RuntimeError:  # The dict changed just now.
            began_s = 0.0
        return began_s - UNREAD_ACCEPT_S

    def read(self, peer: str, size_bytes: int, first: bool = False) -> None:
        """Notes that a handler has a message of this connection, named as gRPC names its client. `first`: it is the
        first message of its call."""
        frames = 1 + (size_bytes + _PREFIX_BYTES) // _FRAME_BYTES + size_bytes // _WINDOW_BYTES
        came = size_bytes + UNREAD_READ_BYTES + frames * _FRAME_HEAD_BYTES
        self._read[peer] += came + UNREAD_CALL_BYTES if first else came
        if first:
            self._calls_read[peer] += 1
        burst = self._bursts.setdefault(peer, _Burst())
        now_s = time.monotonic()
        if now_s - burst.since_s > BURST_S:
            burst.since_s, burst.now_bytes = now_s, 0
        burst.now_bytes += min(size_bytes, BURST_MESSAGE_BYTES_MAX)
        burst.most_bytes = max(burst.most_bytes, burst.now_bytes)

    def wrote(self, peer: str, size_bytes: int) -> None:
        """Notes that a handler has given the connection a message. The client will send that it has room again."""
        self._read[peer] += UNREAD_WROTE_BYTES
        self.sent_bytes += size_bytes

    def answered(self, size_bytes: int) -> None:
        """Notes the answer of a call, which then ends."""
        self.sent_bytes += size_bytes

    def look(self) -> None:
        """Asks the kernel about all connections. Takes 10 us for each open file of the process."""
        with self._looking:
            now_s = time.monotonic()
            self.sent_bytes = 0  # What is sent from now on may not be found.
            free_bytes = int((now_s - self._looked_s) * UNREAD_FREE_BYTES_PER_S)
            self._looked_s = now_s
            peers = {address_of(peer): peer for peer in (*list(self._read), *list(self._calls))}
            known = {cookie: found for one in self.clients.values() for cookie, found in one.connections.items()}
            connections: dict[Address, dict[int, Connection]] = {}
            read: dict[Address, int] = {}
            calls_read: dict[Address, int] = {}
            for found in self._connections.look(self.ports, known):
                connections.setdefault(found.address, {})[found.cookie] = found
                # Read at the same moment: a look takes long, and what comes and is read during it is not unread.
                read[found.address] = self._read.get(peers.get(found.address, ""), 0)
                calls_read[found.address] = self._calls_read.get(peers.get(found.address, ""), 0)
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
                new, since_s = client is not before_it, self._since_s(peer, now_s)
                client.add(now_s, (max(0, came) if new else came) - free, since_s)
                client.doubt(now_s, calls_read[address], since_s)
                # What came of a new connection may have been read during this look: the next one will tell.
                at_once = 0 if new else max(came, min(client.unread[-2:]) if client.looks == 1 else 0)
                client.burst = max(client.burst, at_once, self._bursts.get(peer, _NO_BURST).most_bytes)
                client.looks += 1
                client.port = one.port
                kernel_bytes = sum(one.kernel_bytes for one in ones.values())
                client.kernel = (*client.kernel, kernel_bytes)[-UNREAD_LOOKS:]
                if client.read != read[address]:
                    client.rests_since_s = now_s
                client.calls = len(self._calls.get(peer, ()))
                if client.calls:
                    client.rests_since_s = now_s
                client.connections, client.read = ones, read[address]
            self.clients = clients
            self.kernel_bytes = sum(client.kernel[-1] for client in clients.values())
            self.holding = [one.address for one in clients.values() if one.standing >= UNREAD_ENDED_BYTES_LEAST]
            for address in peers.keys() - clients.keys():  # Their connections are gone.
                self._read.pop(peers[address], None)
                self._calls_read.pop(peers[address], None)
                self._bursts.pop(peers[address], None)

    @staticmethod
    def _client(before: Client | None, address: Address, connections: dict[int, Connection], now_s: float) -> Client:
        """Returns the client of the last look, or a new one. Another connection may have had the new client's port,
        even since the last look. What was read from that one can hide what came on the new one by now, and no more."""
        if before is not None and before.connections.keys() & connections.keys():
            return before
        read, calls = (before.read, before.calls_read) if before else (0, 0)
        return Client(address, read=read, read_before=read, calls_read=calls, rests_since_s=now_s, since_s=now_s)

    def shut_doors(self, shut: bool) -> bool:
        """Does as Connections.shut_doors, for `ports`."""
        return self._connections.shut_doors(shut, self.ports)

    def hang_up(self, client: Client) -> None:
        """Shuts down all of a client's connections of the last look that have not ended since."""
        for one in client.connections.values():
            self._connections.shut_down(one)
