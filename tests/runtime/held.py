"""A memory guard whose process and clients are as a test says."""

from __future__ import annotations

import sys
from random import Random
from typing import cast

import pytest

from shoal_runtime.connections import Address, Connection
from shoal_runtime.limits import NEW_S
from shoal_runtime.memory_guard import MemoryGuard
from shoal_runtime.unread import Client, Unread

MIB = 1 << 20
BUDGET, SHORT = 100 * MIB, 125 * MIB
SEED = 20
PORT = 7


class Held:
    """What a process seems to hold, and its clients. `ended`: ports of those that were hung up on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, grew_bytes_max: int = sys.maxsize) -> None:
        self.bytes = 0
        self.kernel_bytes = 0
        self.sent_bytes = 0
        self.clients: dict[Address, Client] = {}
        self.ended: list[int] = []
        self.ports = {PORT: 1 << 20}
        self.shut = False
        self.now_s = 0.0
        self.guard = MemoryGuard(
            cast(Unread, self), BUDGET, SHORT, lambda: self.bytes, Random(SEED), grew_bytes_max=grew_bytes_max
        )
        monkeypatch.setattr("shoal_runtime.memory_guard.time.monotonic", lambda: self.now_s)

    def look(self) -> None:
        """As the guard asks for it."""

    def shut_doors(self, shut: bool) -> bool:
        assert self.shut != shut
        self.shut = shut
        return True

    def hang_up(self, client: Client) -> None:
        self.ended.append(client.address[1])
        del self.clients[client.address]

    def come(self, port: int, *unread_mib: float, since_s: float = -NEW_S) -> None:
        connection = Connection(port, port, ("c", port), 0, 0)
        unread = tuple(int(size * MIB) for size in unread_mib)
        client = Client(("c", port), {port: connection}, 0, unread, calls=1, port=PORT, since_s=since_s)
        self.clients["c", port] = client

    def after(self, held_mib: int) -> list[int]:
        """The connections that end at one look."""
        self.bytes = held_mib * MIB
        self.ended.clear()
        self.guard.look()
        return list(self.ended)
