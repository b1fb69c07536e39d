"""A model of what consumers hold: which message is out to which consumer, and what is on its way to each session.

It hears what consumers do (ack, leave) and what the slice gives, and says whether that may be given: only what is owed,
to one at a time, once on its way, and each key's messages in their order.

A consumer is whatever the slice uses for one: it is only compared.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from tests.fuzz.owed import Life

Consumer = Hashable


class Holder(NamedTuple):
    """Who has a message; `lease`: until when, if it was pulled under one."""

    consumer: Consumer
    lease: object


class Way(NamedTuple):
    """A message on its way to a session. `handle` None: in the answer to a pull."""

    handle: int | None
    life: int
    key: bytes
    offset: int


class Given:
    """`held`: by life and key, offset -> holder. `ways`: by session, with the turn of the binding at which it was
    given, as often as it was. `left`: consumers that are gone."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, bytes], dict[int, Holder]] = {}
        self.ways: dict[int, dict[Way, list[int]]] = {}
        self.left: set[Consumer] = set()
        self._turns: dict[tuple[int, bytes], int] = {}
        self._last: dict[tuple[tuple[int, int | None], int, bytes], tuple[int, int]] = {}

    def holds(self, life: Life, key: bytes) -> dict[int, Holder]:
        return self.held.setdefault((life.number, key), {})

    def gave(self, life: Life, key: bytes, offset: int, holder: Holder, session: int, handle: int | None) -> None:
        """The slice gave this message just now."""
        assert offset in life.owes(key), f"{key!r} {offset} is given to {life.name!r}, which is not owed it"
        self.holds(life, key)[offset] = holder
        self.way(life, key, offset, session, handle)

    def way(self, life: Life, key: bytes, offset: int, session: int, handle: int | None) -> None:
        """It is on its way."""
        turn = self._turns.get((life.number, key), 0)
        self.ways.setdefault(session, {}).setdefault(Way(handle, life.number, key, offset), []).append(turn)

    def came(self, session: int, way: Way, first_time: bool) -> None:
        """It reached the session."""
        ways = self.ways.get(session, {})
        assert way in ways, f"{way} reaches session {session}, and was not given to it"
        turns = ways[way]
        turn = turns.pop(0)
        if not turns:
            del ways[way]
        if first_time:
            slot = (session, way.handle), way.life, way.key
            last = self._last.get(slot, (0, 0))
            assert last < (turn, way.offset), f"{way} reaches session {session} after {last[1]}: out of order"
            self._last[slot] = turn, way.offset

    def bound_back(self, life: Life, key: bytes) -> None:
        """Messages that were passed come again: their order begins anew."""
        slot = life.number, key
        self._turns[slot] = self._turns.get(slot, 0) + 1

    def forget(self, life: Life, key: bytes) -> None:
        """They are owed no more: what is on its way may still come."""
        self.held.pop((life.number, key), None)

    def ack(self, life: Life, consumer: Consumer, key: bytes, first: int, to: int) -> None:
        """A consumer is done with what it holds in first <= o < to."""
        held = self.holds(life, key)
        for offset in [o for o, holder in held.items() if first <= o < to and holder.consumer is consumer]:
            del held[offset]
            life.acked.setdefault(key, set()).add(offset)

    def leave(self, consumer: Consumer) -> None:
        """What it holds is to be given again."""
        self.left.add(consumer)
        for held in self.held.values():
            for offset in [offset for offset, holder in held.items() if holder.consumer is consumer]:
                del held[offset]

    def detach(self, session: int, handle: int | None) -> None:
        """Nothing comes under this handle any more."""
        ways = self.ways.get(session, {})
        for way in [way for way in ways if way.handle == handle]:
            del ways[way]
        for slot in [slot for slot in self._last if slot[0] == (session, handle)]:
            del self._last[slot]

    def leases_over(self, leases: set[object]) -> None:
        """What was pulled under them is to be given again."""
        for held in self.held.values():
            for offset in [offset for offset, holder in held.items() if holder.lease in leases]:
                del held[offset]
        for slot in [slot for slot in self._last if slot[0][1] is None]:
            del self._last[slot]

    def crashed(self) -> None:
        """Nothing of a slice's dispatch survives it."""
        self.held.clear()
        self.ways.clear()
        self._last.clear()
