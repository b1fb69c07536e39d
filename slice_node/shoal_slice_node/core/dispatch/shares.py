"""Counts the shares of a process's memory that dispatch fills, and says how much of them a session may still take.

The counts are about what CPython keeps, as measured; the figures are in limits.py. A share that fills up makes the
sessions that hold most of it lag, before others notice: below half of the share every session has its own window; above
that, the rest is divided among the sessions that hold something. Once it is full, sessions take turns (room_line.py).

A delivery counts its whole chunk in each session, though sessions of one key have the same object while it waits: each
has copies of its own once it is written, and all may be written at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.room_line import RoomLine
from shoal_slice_node.core.dispatch.stretches import Rests
from shoal_slice_node.core.limits import (
    DELIVERIES_FLOOR_BYTES,
    LARGE_DELIVERY_BYTES,
    LEASE_BYTES,
    OWED_BY_PULLS_MAX,
    OWED_BYTES,
    OWED_FLOOR,
    OWED_PER_SESSION_MAX,
    RESTING_BYTES,
    RESTING_FLOOR,
    RESTING_MAX,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session


class Share:
    """Keeps one part of the budget. `used_bytes` may exceed `limit_bytes` by what is taken last: of deliveries, by one
    chunk and its handles. It is never below 0."""

    __slots__ = ("limit_bytes", "name", "used_bytes")

    def __init__(self, name: str, limit_bytes: int) -> None:
        self.name = name
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes

    def hold(self, size_bytes: int) -> None:
        """Notes that so much more is used."""
        self.used_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        """Notes that so much less is used."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0

    def count(self, used_bytes: int) -> None:
        """Notes what is used, where it is counted from time to time."""
        self.used_bytes = used_bytes


class DispatchShares:
    """Keeps the shares. `deliveries`: what waits for sessions or is at their transports. `attached`: feeds, streams and
    attachments. `owed`: what sessions have and have not acked, and what came back and rests. `rests`: counts the
    latter. `holding`: the number of sessions that hold deliveries. `line`: sessions that wait for room for deliveries.
    `leaving_bytes`: what of `deliveries` the transports of ended sessions still hold."""

    __slots__ = ("attached", "deliveries", "holding", "leaving_bytes", "line", "owed", "rests")

    def __init__(
        self, deliveries_bytes: int = 1 << 40, attached_bytes: int = 1 << 40, owed_bytes: int = 1 << 40
    ) -> None:
        self.deliveries = Share("deliveries", deliveries_bytes)
        self.attached = Share("attached queues", attached_bytes)
        self.owed = Share("owed deliveries", owed_bytes)
        self.rests = Rests()
        self.holding = 0
        self.line = RoomLine(self.deliveries)
        self.leaving_bytes = 0

    @property
    def rests_max(self) -> int:
        """Returns how many stretches may rest before nacks are refused."""
        return min(RESTING_MAX, max(RESTING_FLOOR, self.owed.limit_bytes // RESTING_BYTES))

    @property
    def owed_by_pulls_max(self) -> int:
        """Returns how much the session that all unary calls share may owe."""
        return min(OWED_BY_PULLS_MAX, max(OWED_FLOOR, self.owed.limit_bytes // (2 * OWED_BYTES)))

    def divide_owed(self, sessions: Sequence[Session], of_calls: Sequence[Session] = ()) -> None:
        """Counts what sessions owe and what rests, and lowers what each may owe while the sum is more than half of the
        share. It is enough to call this from time to time: between two calls a session cannot owe much more. A session
        that has no room owes something: its acks make room. The leases of a session take from what it may owe itself.
        `of_calls`: the session of unary calls, which has a bound of its own."""
        share = self.owed
        resting_bytes = RESTING_BYTES * self.rests.stretches
        by_pulls_bytes = sum(_owed_bytes(session) for session in of_calls)
        share.count(by_pulls_bytes + sum(_owed_bytes(session) for session in sessions) + resting_bytes)
        if 2 * share.used_bytes <= share.limit_bytes:
            for session in sessions:
                session.limit_owed(OWED_PER_SESSION_MAX)
            return
        owing = sum(session.owed > 0 for session in sessions)
        left_bytes = max(0, share.limit_bytes - resting_bytes - by_pulls_bytes) // (2 * max(1, owing))
        for session in sessions:
            owed_max = (left_bytes - LEASE_BYTES * session.leases.out) // OWED_BYTES
            session.limit_owed(max(OWED_FLOOR, min(OWED_PER_SESSION_MAX, owed_max)))

    def hold(self, session: Session, cost_bytes: int) -> None:
        """Notes that the session holds `cost_bytes` more."""
        if not session.under_way_bytes and cost_bytes:
            self.holding += 1
            self.line.holds(session)
        session.hold(cost_bytes)
        share = self.deliveries
        share.hold(cost_bytes)
        if 2 * share.used_bytes > share.limit_bytes:
            self._narrow(session)

    def hold_chunk(self, session: Session, cost_bytes: int) -> None:
        """Notes that the session holds a chunk more, which takes so much."""
        line = self.line
        out_of_turn = line.is_crowded and not line.lets_in(session) and line.lets_in_out_of_turn(session, cost_bytes)
        self.hold(session, cost_bytes)
        if out_of_turn:
            self._count_held(session, session.held_large_bytes, session.held_out_of_turn_bytes + cost_bytes)
        elif cost_bytes > LARGE_DELIVERY_BYTES:
            if not session.held_large_bytes:
                line.holds_large(session)
            self._count_held(session, session.held_large_bytes + cost_bytes, session.held_out_of_turn_bytes)

    def _count_held(self, session: Session, large_bytes: int, out_of_turn_bytes: int) -> None:
        """Notes what a session holds of large chunks, and of what was given out of turn."""
        self.line.count_large(large_bytes - session.held_large_bytes)
        self.line.count_out_of_turn(out_of_turn_bytes - session.held_out_of_turn_bytes)
        session.count_held(large_bytes, out_of_turn_bytes)

    def let_go(self, session: Session, cost_bytes: int) -> None:
        """Notes that the session holds `cost_bytes` less."""
        session.let_go(cost_bytes)
        self.deliveries.let_go(cost_bytes)
        held_large_bytes, left_bytes = session.held_large_bytes, session.under_way_bytes
        if max(held_large_bytes, session.held_out_of_turn_bytes) > left_bytes:
            out_of_turn_bytes = min(session.held_out_of_turn_bytes, left_bytes)
            self._count_held(session, min(held_large_bytes, left_bytes), out_of_turn_bytes)
        if cost_bytes and not session.under_way_bytes:
            self.holding -= 1
            self.line.holds_nothing(session, held_large_bytes > 0)
        share = self.deliveries
        if 2 * share.used_bytes > share.limit_bytes or session.room_bytes != session.window_bytes:
            self._narrow(session)

    def hold_written(self, size_bytes: int) -> None:
        """Notes what the transport of a session that ended still holds: gRPC keeps it until the call is over."""
        self.leaving_bytes += size_bytes
        self.line.count_large(size_bytes)
        self.deliveries.hold(size_bytes)

    def let_go_written(self, size_bytes: int) -> None:
        """Notes that the transport has let it go."""
        self.leaving_bytes -= size_bytes
        self.line.count_large(-size_bytes)
        self.deliveries.let_go(size_bytes)

    def _narrow(self, session: Session) -> None:
        """Sets how much the session may hold. A session that has no room of its own holds something; when that is let
        go, this is called again. So no session is forgotten."""
        share = self.deliveries
        if 2 * share.used_bytes <= share.limit_bytes:
            session.limit_room(session.window_bytes)
        else:
            fair_bytes = share.limit_bytes // (2 * max(1, self.holding))
            session.limit_room(max(DELIVERIES_FLOOR_BYTES, fair_bytes))


def _owed_bytes(session: Session) -> int:
    """Returns what a session's unacked stretches and its leases take."""
    return OWED_BYTES * session.owed + LEASE_BYTES * session.leases.out
