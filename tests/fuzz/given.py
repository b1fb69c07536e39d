"""Models what consumers hold: which message is out to which consumer, and what is on its way to each session.

The model hears what consumers do (ack, leave) and what the slice gives, and checks that the slice may give it: only
messages that are owed, to one consumer at a time, once on its way, and each key's messages in their order.

A consumer is any object that the slice uses for one: the model only compares it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Set
from typing import NamedTuple

from tests.fuzz.owed import Life

Consumer = Hashable
NACK, TIMEOUT, LEFT = 1, 2, 3
CameBack = Callable[[int, bytes, int, int], None]
"""Hears that a message reached a consumer and came back: its life, key and offset, and why."""


class Holder(NamedTuple):
    """The consumer that has a message, and the `lease` if the message was pulled under one."""

    consumer: Consumer
    lease: object


class Way(NamedTuple):
    """A message on its way to a session. `handle` is None in the answer to a pull."""

    handle: int | None
    life: int
    key: bytes
    offset: int


class Given:
    """Keeps what consumers hold. `held`: by life and key, offset -> holder. `ways`: by session, each message on its way
    with the binding's turn, and the nacks looked at, at each time that it was given. `left`: consumers that are gone.
    `stopped`: those that asked for nothing more."""

    def __init__(self) -> None:
        self.came_back: CameBack = lambda life, key, offset, reason: None
        self.acked_late: Callable[[int, bytes, set[int]], None] = lambda life, key, offsets: None
        self.held: dict[tuple[int, bytes], dict[int, Holder]] = {}
        self.ways: dict[int, dict[Way, list[tuple[int, tuple[int, int]]]]] = {}
        self.nacks: dict[int, tuple[int, int]] = {}
        """The number of each session's last nacks that were looked at, and of the last that were sent."""
        self.left: set[Consumer] = set()
        self.stopped: set[Consumer] = set()
        self._given_back: set[tuple[int, bytes, int]] = set()
        """Life, key and offset of what a consumer had when it left: it may come to another out of its order, for the
        first time if it was never sent."""
        self._turns: dict[tuple[int, bytes], int] = {}
        self._last: dict[tuple[tuple[int, int | None], int, bytes], tuple[int, int]] = {}
        self._at: dict[Consumer, tuple[int, int | None]] = {}
        """The session and handle of each consumer."""
        self._unsent: dict[tuple[int, int | None], set[Way]] = {}
        """What was on its way when a handle was detached, or its session closed."""

    def holds(self, life: Life, key: bytes) -> dict[int, Holder]:
        return self.held.setdefault((life.number, key), {})

    def gave(self, life: Life, key: bytes, offset: int, holder: Holder, session: int, handle: int | None) -> None:
        """Notes that the slice gave this message just now."""
        assert offset in life.owes(key), f"{key!r} {offset} is given to {life.name!r}, which is not owed it"
        assert holder.consumer not in self.stopped, f"{key!r} {offset} is given to a handle that was stopped"
        self.holds(life, key)[offset] = holder
        self._at[holder.consumer] = session, handle
        self._unsent.get((session, handle), set()).discard(Way(handle, life.number, key, offset))
        self.way(life, key, offset, session, handle)

    def way(self, life: Life, key: bytes, offset: int, session: int, handle: int | None) -> None:
        """Notes that a message is on its way."""
        turn = self._turns.get((life.number, key), 0)
        way = Way(handle, life.number, key, offset)
        self.ways.setdefault(session, {}).setdefault(way, []).append((turn, self.nacks.get(session, (0, 0))))

    def came(self, session: int, way: Way, first_time: bool, nacks_taken: int) -> None:
        """Notes that a message reached the session, and told which nacks had been looked at before it was given."""
        ways = self.ways.get(session, {})
        assert way in ways, f"{way} reaches session {session}, and was not given to it"
        turns = ways[way]
        turn, (low, high) = turns.pop(0)
        assert way.handle is None or low <= nacks_taken <= high, f"{way} tells nacks {nacks_taken}, not {low} to {high}"
        if not turns:
            del ways[way]
        if first_time and way[1:] not in self._given_back:
            slot = (session, way.handle), way.life, way.key
            last = self._last.get(slot, (0, 0))
            left_over = turn < last[0] and way.offset > last[1]  # Of the binding before, in one parcel with the next's.
            in_order = last < (turn, way.offset) or left_over
            assert in_order, f"{way} reaches session {session} after {last[1]}: out of order"
            self._last[slot] = max(last, (turn, way.offset))

    def bound_back(self, life: Life, key: bytes) -> None:
        """Notes that messages that were passed come again: their order begins anew."""
        slot = life.number, key
        self._turns[slot] = self._turns.get(slot, 0) + 1

    def forget(self, life: Life, key: bytes) -> None:
        """Notes that a binding's messages are no longer owed. Messages on their way may still come."""
        self.held.pop((life.number, key), None)

    def done(self, life: Life, key: bytes, offsets: set[int]) -> None:
        """Notes that a change acked these messages, whichever consumer holds them. Those on their way may come."""
        held = self.holds(life, key)
        for offset in offsets & held.keys():
            del held[offset]

    def ack(self, life: Life, consumer: Consumer, key: bytes, first: int, to: int) -> None:
        """Notes that a consumer is done with the offsets that it holds in first <= o < to."""
        held = self.holds(life, key)
        for offset in [o for o, holder in held.items() if first <= o < to and holder.consumer is consumer]:
            del held[offset]
            life.acked.setdefault(key, set()).add(offset)

    def nack(
        self,
        life: Life,
        consumer: Consumer,
        key: bytes,
        first: int,
        to: int,
        at: tuple[int, int | None],
        unseen: bool = False,
        waits: Set[int] = frozenset(),
    ) -> None:
        """Notes that a consumer gave back the offsets that it holds in first <= o < to, as far as they reached
        it, and those that still waited for it. `at`: its session and handle. `unseen`: this delivery does not count."""
        session, handle = at
        held, ways = self.holds(life, key), self.ways.get(session, {})
        for way in [Way(handle, life.number, key, offset) for offset in waits]:
            ways[way].pop()
            if not ways[way]:
                del ways[way]
        for offset in [o for o, holder in held.items() if holder.consumer is consumer]:
            if offset in waits:
                del held[offset]
                self._given_back.add((life.number, key, offset))
            elif first <= offset < to and (handle is None or Way(handle, life.number, key, offset) not in ways):
                del held[offset]
                if unseen:
                    self._given_back.add((life.number, key, offset))
                else:
                    self.came_back(life.number, key, offset, NACK)

    def ack_anywhere(self, life: Life, key: bytes, offsets: set[int]) -> None:
        """Notes that a client acked what it was given on an earlier stream, whoever holds it now."""
        held = self.holds(life, key)
        self.acked_late(life.number, key, offsets - held.keys())
        life.acked.setdefault(key, set()).update(offsets & life.owes(key))
        self.done(life, key, offsets)

    def ack_left(self, life: Life, key: bytes, stretches: list[tuple[int, int]]) -> None:
        """Notes that a unary ack named offsets that a consumer had when it left, and no other has yet."""
        held = self.holds(life, key)
        named = {offset for low, high in stretches for offset in range(low, high)} - held.keys()
        self.acked_late(life.number, key, named)
        life.acked.setdefault(key, set()).update(named & life.owes(key))

    def leave(self, consumer: Consumer) -> None:
        """Notes that a consumer left: the messages that it holds must be given again."""
        self.left.add(consumer)
        for (life, key), held in self.held.items():
            for offset in [offset for offset, holder in held.items() if holder.consumer is consumer]:
                del held[offset]
                self._given_back.add((life, key, offset))
                if self._reached(consumer, life, key, offset):
                    self.came_back(life, key, offset, LEFT)

    def _reached(self, consumer: Consumer, life: int, key: bytes, offset: int) -> bool:
        """Returns whether a message that the consumer has was sent to it."""
        session, handle = at = self._at[consumer]
        way = Way(handle, life, key, offset)
        return handle is None or not (way in self.ways.get(session, {}) or way in self._unsent.get(at, ()))

    def closes(self, session: int) -> None:
        """Notes that nothing more reaches the session."""
        self.nacks.pop(session, None)
        for way in self.ways.pop(session, {}):
            self._unsent.setdefault((session, way.handle), set()).add(way)

    def detach(self, session: int, handle: int | None) -> None:
        """Notes that no message comes under this handle any more."""
        ways = self.ways.get(session, {})
        for way in [way for way in ways if way.handle == handle]:
            del ways[way]
            self._unsent.setdefault((session, handle), set()).add(way)
        for slot in [slot for slot in self._last if slot[0] == (session, handle)]:
            del self._last[slot]

    def leases_over(self, leases: set[object]) -> None:
        """Notes that leases are over: the messages that were pulled under them must be given again."""
        for (life, key), held in self.held.items():
            for offset in [offset for offset, holder in held.items() if holder.lease in leases]:
                del held[offset]
                self.came_back(life, key, offset, TIMEOUT)
        for slot in [slot for slot in self._last if slot[0][1] is None]:
            del self._last[slot]

    def withdrawn(self, leases: set[object], waiting: Callable[[int, Way], int]) -> None:
        """Notes that what of these leases was not sent in time was taken back. `waiting`: returns how often a message
        still waits for a session."""
        taken_back: set[tuple[int, int | None, int, bytes]] = set()
        for (life, key), held in self.held.items():
            for offset, holder in list(held.items()):
                if holder.lease not in leases:
                    continue
                session, handle = self._at[holder.consumer]
                taken_back.add((session, handle, life, key))
                if self._withdraw(session, Way(handle, life, key, offset), waiting):
                    del held[offset]
                    self._given_back.add((life, key, offset))
        for session, handle, life, key in taken_back:  # All of the binding that waits, acked or of another lease, too.
            held = self.held[life, key]
            for way in [one for one in self.ways.get(session, {}) if one[:3] == (handle, life, key)]:
                if self._withdraw(session, way, waiting) and held.pop(way.offset, None) is not None:
                    self._given_back.add((life, key, way.offset))

    def _withdraw(self, session: int, way: Way, waiting: Callable[[int, Way], int]) -> bool:
        """Notes how often a message still waits for a session. Returns whether it was on its way more often."""
        turns = self.ways.get(session, {}).get(way, [])
        left = waiting(session, way)
        if len(turns) <= left:
            return False
        del turns[left:]
        if not turns:
            del self.ways[session][way]
        return True

    def on_its_way(self, lease: object) -> bool:
        """Returns whether some of a lease did not reach its consumer."""
        return any(
            holder.lease is lease and not self._reached(holder.consumer, life, key, offset)
            for (life, key), held in self.held.items()
            for offset, holder in held.items()
        )

    def leases(self) -> set[object]:
        """Returns the leases with something out."""
        return {holder.lease for held in self.held.values() for holder in held.values()} - {None}

    def crashed(self) -> None:
        """Notes a crash: nothing of a slice's dispatch survives it."""
        self.nacks = {}
        self.held.clear()
        self.ways.clear()
        self._last.clear()
