"""Where a process holds too much, the connections end that hold most of what nobody reads, and no more than needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import cast

import pytest

from shoal_contract.connections import Address, Connection
from shoal_contract.limits import UNREAD_ENDED_AT_ONCE_BYTES, UNREAD_GOING_S, UNREAD_LOOKS
from shoal_contract.memory_guard import MemoryGuard
from shoal_contract.unread import Client, Unread

MIB = 1 << 20
BUDGET, SHORT = 100 * MIB, 125 * MIB


class Held:
    """What a process seems to hold, and its clients. `ended`: ports of those that were hung up on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        self.clients: dict[Address, Client] = {}
        self.ended: list[int] = []
        self.shut = False
        self.now_s = 0.0
        self.guard = MemoryGuard(cast(Unread, self), BUDGET, SHORT, lambda: self.bytes)
        monkeypatch.setattr("shoal_contract.memory_guard.time.monotonic", lambda: self.now_s)

    def look(self) -> None:
        """As the guard asks for it."""

    def shut_doors(self, shut: bool, ports: Collection[int]) -> bool:
        assert self.shut != shut and ports == self.guard.ports
        self.shut = shut
        return True

    def hang_up(self, client: Client) -> None:
        self.ended.append(client.address[1])
        del self.clients[client.address]

    def come(self, port: int, *unread_mib: float) -> None:
        connection = Connection(port, port, ("c", port), 0, 0)
        unread = deque([int(size * MIB) for size in unread_mib], UNREAD_LOOKS)
        self.clients["c", port] = Client(("c", port), {port: connection}, 0, unread)

    def after(self, held_mib: int) -> list[int]:
        """Who ends at one look."""
        self.bytes = held_mib * MIB
        self.ended.clear()
        self.guard.look()
        return list(self.ended)


def test_those_with_most_end_until_it_is_enough_and_what_they_held_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = Held(monkeypatch)
    for port, size_mib in enumerate((1, 15, 14, 9, 0)):
        held.come(port, *[size_mib] * UNREAD_LOOKS)
    assert not held.after(120)
    assert held.after(126) == [1, 2]
    assert not held.after(126), "what they held is not free yet"
    held.now_s += UNREAD_GOING_S
    assert held.after(126) == [3, 0]


def test_what_just_comes_is_nothing_but_very_much_is(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.come(1, 0, 0, 15)
    for port in (2, 3, 4):
        held.come(port, 0, 0, port * UNREAD_ENDED_AT_ONCE_BYTES / MIB)
    assert held.after(140) == [4, 3, 2], "all of them: no calls of a connection hold as much"


def test_no_new_ones_come_while_others_end_and_what_they_held_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that had been hung up on was back sooner than what it had held was free: 2,500 MiB of 512."""
    held = Held(monkeypatch)
    held.guard.ports = {7000}
    held.come(1, 50, 50, 50)
    assert not held.after(124) and not held.shut
    assert held.after(126) == [1] and held.shut
    assert not held.after(126) and held.shut
    held.now_s += UNREAD_GOING_S
    assert not held.after(126) and not held.shut, "nobody is left to be ended: whoever comes may come"
    held.come(2, 50, 50, 50)
    assert held.after(126) == [2] and held.shut
    assert not held.after(100) and not held.shut


def test_where_much_cannot_be_given_back_more_is_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.come(1, 1, 1, 1)
    held.guard.short_bytes = 200 * MIB
    assert not held.after(199)
    assert held.after(201) == [1]


def test_its_thread_ends_and_outlives_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    looks: list[int] = []

    def fails() -> None:
        looks.append(1)
        raise RuntimeError("once more")

    held.bytes = SHORT
    monkeypatch.setattr(held, "look", fails)
    held.guard.start()
    while len(looks) < 2:
        pass
    held.guard.stop()
    assert not held.guard._thread.is_alive()
