"""Lets sessions wait for room in the share of deliveries, and then take turns.

While the share is full, no session is given anything. Those that were turned away wait in line, connections in turn,
and the sessions of each. While any session waits, only the one whose turn it is is given something: else sessions that
come later would take what others let go. A turn brings what the session has room for, up to a bound; for more it stands
in line again.

There are two lines. What waits is small until a look at it shows that it is large; where the share is nearly full, or
others wait for large chunks, a turn of the line for small ones gives no large one. Small chunks come first, and may
exceed the share by a part: clients of small messages do not wait until those of large ones have read. But they take no
more than half of it beside large ones, and three quarters alone, but for connections to which nothing is under way.

Of those that wait for large chunks, connections to which nothing large is under way come first, and the last part of
the share is only for them: clients that read have their turn though others do not. Small chunks are under way to a few
sessions of a connection at a time then, so that no connection takes all of the room for them.

A little comes out of turn (out_of_turn.py). It takes nothing of the share, but its connection holds something then.

A line moves whenever there is room. A share that is full is held by sessions that read, and let it go, or by sessions
that do not, and end (adapters/writers.py). Not here: how a session uses its turn (pump).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.freed_looks import FreedLooks
from shoal_slice_node.core.dispatch.out_of_turn import OutOfTurn
from shoal_slice_node.core.limits import (
    FREED_REFUSED_EACH_TIME,
    FREED_REFUSED_EVERY_MS,
    FREED_REFUSED_MAX,
    LARGE_DELIVERY_BYTES,
    NEWCOMERS_PARTS,
    SMALL_BEYOND_PARTS,
    SMALL_HOLDERS_MAX,
    SMALL_OF_LEFT_PARTS,
    TURNS_PER_TURN_OF_ALL,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.shares import Share
    from shoal_slice_node.core.dispatch.streams import Stream


_Connections = OrderedDict[str, OrderedDict["Session", None]]


class _Line:
    """Keeps sessions that wait, by connection. The first connection is next, and none is empty. `first`: those of these
    connections that come first; the first one is next. `new`: those of these to which nothing is under way; `busy`: the
    others of these. `turns`: how many it had."""

    __slots__ = ("busy", "connections", "first", "new", "turns")

    def __init__(self) -> None:
        self.connections: _Connections = OrderedDict()
        self.first: OrderedDict[str, None] = OrderedDict()
        self.new: OrderedDict[str, None] = OrderedDict()
        self.busy: OrderedDict[str, None] = OrderedDict()
        self.turns = 0

    def join(self, session: Session) -> None:
        """Lets the session wait, if it does not. `put` must follow."""
        self.connections.setdefault(session.connection, OrderedDict())[session] = None

    def put(self, connection: str, comes_first: bool, is_new: bool) -> None:
        """Notes how the connection waits, if sessions of it do."""
        is_busy = comes_first and not is_new
        for some, belongs in ((self.first, comes_first), (self.new, is_new), (self.busy, is_busy)):
            if not belongs:
                some.pop(connection, None)
            elif connection in self.connections:
                some[connection] = None

    def leave(self, session: Session) -> None:
        """Forgets a session."""
        waiting = self.connections.get(session.connection)
        if waiting is not None:
            waiting.pop(session, None)
            if not waiting:
                del self.connections[session.connection]
                self.put(session.connection, False, False)

    def take(self, of: _Connections | OrderedDict[str, None]) -> Session:
        """Takes out the next session of these connections; its connection is the last one then."""
        connection = next(iter(of))
        waiting = self.connections.pop(connection)
        session, _ = waiting.popitem(last=False)
        comes_first, is_new = connection in self.first, connection in self.new
        self.put(connection, False, False)
        if waiting:
            self.connections[connection] = waiting
            self.put(connection, comes_first, is_new)
        return session


class RoomLine:
    """Keeps the lines for a share. `held_large_bytes`: what large chunks take of it, about, and what transports keep of
    ended sessions. `out_of_turn`: what is given to sessions that wait. `freed`: connections whose sessions are looked
    at for what may come out of turn."""

    __slots__ = (
        "_holding",
        "_holding_large",
        "_in_turn",
        "_large",
        "_looked_ms",
        "_looks_left",
        "_refused_before",
        "_share",
        "_small",
        "_turns",
        "freed",
        "held_large_bytes",
        "out_of_turn",
    )

    def __init__(self, share: Share) -> None:
        self._share = share
        self._small, self._large = _Line(), _Line()
        self._holding: Counter[str] = Counter()
        """How many sessions of each connection hold something, but nothing large."""
        self._holding_large: Counter[str] = Counter()
        """How many sessions of each connection hold something large."""
        self._turns = 0
        self._in_turn: tuple[Session, bool] | None = None
        """The session whose turn it is, and whether it is one for large chunks."""
        self.held_large_bytes = 0
        self.out_of_turn = OutOfTurn(share)
        self.freed = FreedLooks()
        self._refused_before = 0
        """How many connections had found no room as one let go of something, and were not looked at since. The first
        ones of these that found none."""
        self._looks_left = 0
        """How many more looks may follow, about: a connection that is begun with is looked at whole."""
        self._looked_ms = 0

    def __len__(self) -> int:
        """Returns how many connections may have their turn now."""
        return len(self._next_small) + len(self._next_large)

    def __contains__(self, session: Session) -> bool:
        return any(session in line.connections.get(session.connection, ()) for line in (self._small, self._large))

    @property
    def waiting(self) -> int:
        """Returns the number of sessions that wait; those that wait in both lines count twice."""
        return sum(len(one) for line in (self._small, self._large) for one in line.connections.values())

    @property
    def is_nearly_full(self) -> bool:
        """Returns whether some connections may be given nothing now."""
        return self._used_bytes >= self._most_bytes

    @property
    def _used_bytes(self) -> int:
        return self._share.used_bytes - self.out_of_turn.held_bytes

    @property
    def is_crowded(self) -> bool:
        """Returns whether some sessions must wait."""
        return bool(self._small.connections or self._large.connections) or self.is_nearly_full

    @property
    def _most_bytes(self) -> int:
        limit_bytes = self._share.limit_bytes
        return limit_bytes - limit_bytes // NEWCOMERS_PARTS

    @property
    def _most_small_bytes(self) -> int:
        """Returns how much of the share may be used while small chunks are given: they leave large ones some of it."""
        limit_bytes = self._share.limit_bytes
        most_bytes = max(self._most_bytes, self.held_large_bytes + limit_bytes // 2)
        return min(most_bytes, limit_bytes + limit_bytes // SMALL_BEYOND_PARTS)

    @property
    def _small_max_bytes(self) -> int:
        """Returns the most memory of a chunk that is small now: a part of what is left for small ones, if that is
        more."""
        left_bytes = self._most_small_bytes - self._used_bytes
        return max(LARGE_DELIVERY_BYTES, left_bytes // SMALL_OF_LEFT_PARTS)

    @property
    def _next_small(self) -> _Connections | OrderedDict[str, None]:
        """Returns the connections that may have a turn for small chunks now."""
        used_bytes, line = self._used_bytes, self._small
        if used_bytes < self._most_bytes:
            return line.connections
        if used_bytes < self._most_small_bytes:
            return line.first
        return line.new if used_bytes < self._share.limit_bytes else OrderedDict()

    @property
    def _next_large(self) -> _Connections | OrderedDict[str, None]:
        used_bytes, line = self._used_bytes, self._large
        if used_bytes < self._most_bytes:
            return line.connections
        return line.first if used_bytes < self._share.limit_bytes else OrderedDict()

    def most_bytes(self, session: Session) -> int:
        """Returns how much of the share may be used while the session is given more."""
        if self._in_turn is not None and session is self._in_turn[0]:
            limit_bytes = self._share.limit_bytes
            return limit_bytes if self._in_turn[1] else max(limit_bytes, self._most_small_bytes)
        return self._most_bytes if session.connection in self._holding_large else self._share.limit_bytes

    def lets_in(self, session: Session) -> bool:
        """Returns whether the session may be given something now."""
        in_turn = self._in_turn is not None and session is self._in_turn[0]
        if not in_turn and (self._small.connections or self._large.connections):
            return False
        return self._used_bytes < self.most_bytes(session)

    def lets_in_out_of_turn(self, session: Session, cost_bytes: int) -> bool:
        """Returns whether the session may be given what takes so much memory, though it is not let in."""
        holders = self._holding.get(session.connection, 0) + self._holding_large.get(session.connection, 0)
        return self.out_of_turn.has_room(session, cost_bytes, holders)

    def must_wait(self, cost_bytes: int) -> bool:
        """Returns whether every session has to wait for its turn to be given what takes so much memory."""
        others_wait = bool(self._small.connections or self._large.connections)
        return others_wait and self.out_of_turn.is_too_large(cost_bytes)

    def count_out_of_turn(self, more_bytes: int) -> None:
        """Notes that sessions hold so much more of what is given out of turn, or less if it is negative: then
        connections that found no room are looked at."""
        self.out_of_turn.count(more_bytes)
        if more_bytes < 0:
            self._refused_before = len(self.out_of_turn.refused)
            self._looks_left = max(self._looks_left, FREED_REFUSED_MAX)
            self._look_at_refused()

    def tick(self, now_ms: int) -> None:
        """Looks at more of the connections that had found no room before one let go of something, now and then: there
        may be some, though nobody lets go of anything any more."""
        if self._refused_before and now_ms - self._looked_ms >= FREED_REFUSED_EVERY_MS:
            self._looked_ms = now_ms
            self._looks_left = FREED_REFUSED_EACH_TIME
            self._look_at_refused()

    def _look_at_refused(self) -> None:
        refused = self.out_of_turn.refused
        self._refused_before = min(self._refused_before, len(refused))
        while self._looks_left and self._refused_before:
            self._refused_before -= 1
            connection, _ = refused.popitem(last=False)
            if connection in self._small.connections:
                self._looks_left -= 1
                self.freed.begin(connection)
                return

    def _may_have_out_of_turn(self, session: Session) -> bool:
        """Returns whether the session may be given anything out of turn."""
        return self.lets_in_out_of_turn(session, 1)

    def is_too_large(self, session: Session, cost_bytes: int) -> bool:
        """Returns whether what takes so much memory has to wait for a turn in the line for large chunks."""
        return session is self.small_turn_of and cost_bytes > self._small_max_bytes

    @property
    def small_turn_of(self) -> Session | None:
        """Returns the session that has a turn in which nothing large is given; None: there is none."""
        if self._in_turn is None or self._in_turn[1]:
            return None
        return self._in_turn[0] if self.is_nearly_full or self._large.connections else None

    def waits_for_large_turn(self, stream: Stream) -> bool:
        """Returns whether the turn under way gives nothing of the stream: it is known that a large chunk is next."""
        session = self.small_turn_of
        return session is not None and session.turned_away.is_large(stream.feed.queue_id, stream.key_id, stream.lowest)

    def has_room_for_live(self, session: Session, cost_bytes: int) -> bool:
        """Returns whether the session may be given a live chunk that takes so much memory: it cannot wait."""
        used_bytes = self._used_bytes
        if cost_bytes > self._small_max_bytes or used_bytes < self._most_bytes:
            let_in = used_bytes < self.most_bytes(session)
        else:
            let_in = used_bytes < self._most_small_bytes and self._is_light(session.connection)
        return let_in or self.lets_in_out_of_turn(session, cost_bytes)

    def wait(self, session: Session) -> None:
        """Lets a session wait in the lines in which feeds that it turned away do."""
        for large in (False, True):
            if session.turned_away.of(large):
                self.join(session, large)

    def join(self, session: Session, large: bool = False) -> None:
        """Lets the session wait, if it does not. `large`: for large chunks."""
        (self._large if large else self._small).join(session)
        self._put(session.connection)

    def leave(self, session: Session) -> None:
        """Forgets a session that has ended."""
        self._small.leave(session)
        self._large.leave(session)

    def _is_light(self, connection: str) -> bool:
        return self._holding[connection] < SMALL_HOLDERS_MAX if connection in self._holding else True

    def holds(self, session: Session) -> None:
        """Notes that something is under way to a session to which nothing was."""
        self._count(session.connection, 1, 0)

    def holds_large(self, session: Session) -> None:
        """Notes that something large is under way to a session to which nothing large was."""
        self._count(session.connection, -1, 1)

    def holds_nothing(self, session: Session, was_large: bool) -> None:
        """Notes that nothing is under way to a session any more. `was_large`: something large was, since nothing
        was."""
        self._count(session.connection, was_large - 1, -was_large)
        if session.turned_away or session.connection in self._small.connections:
            self.freed.begin(session.connection)

    def next_freed(self) -> tuple[Session, Feed] | None:
        """Returns what is to be looked at for what may come out of turn: see FreedLooks.next."""
        found = self.freed.next(self._small.connections, self._may_have_out_of_turn)
        if found is not None and self._looks_left:
            self._looks_left -= 1  # A connection may have thousands of keys.
        if not self.freed:
            self._look_at_refused()
        return found

    def gave_freed(self, session: Session) -> None:
        """Notes that such a look gave something to the session."""
        self.freed.gave(self._small.connections, session)

    def count_large(self, more_bytes: int) -> None:
        """Notes that large chunks take so much more, or less if it is negative."""
        self.held_large_bytes += more_bytes

    def _count(self, connection: str, small: int, large: int) -> None:
        for counter, more in ((self._holding, small), (self._holding_large, large)):
            if more:
                counter[connection] += more
                if not counter[connection]:
                    del counter[connection]
        self._put(connection)

    def _put(self, connection: str) -> None:
        """Notes how the connection waits."""
        holds_large = connection in self._holding_large
        is_new = not holds_large and connection not in self._holding
        if self._small.connections:
            self._small.put(connection, self._is_light(connection), is_new)
        if self._large.connections:
            self._large.put(connection, not holds_large, is_new)

    @property
    def turn_bytes(self) -> int:
        """Returns how much a turn may bring, about; it brings a chunk in any case. The more connections wait and hold
        something, the less it is, so that each has its turn."""
        waiting, holding = (self._small.connections, self._large.connections), (self._holding, self._holding_large)
        return self._share.limit_bytes // (2 * (1 + sum(map(len, waiting)) + sum(map(len, holding))))

    def begin_turn(self) -> tuple[Session, bool]:
        """Returns the session whose turn it is, which does not wait for it any more, and whether it is a turn for large
        chunks. There must be one (see `__len__`)."""
        self._turns += 1
        others_turn = self._turns % TURNS_PER_TURN_OF_ALL == 0
        large = bool(self._next_large) and (others_turn or not self._next_small)
        line, of = (self._large, self._next_large) if large else (self._small, self._next_small)
        line.turns += 1
        is_turn_of_all = line.turns % TURNS_PER_TURN_OF_ALL == 0
        if of is line.connections and line.first and not is_turn_of_all:
            of = line.first
        elif of is line.new and line.busy and is_turn_of_all:
            of = line.busy
        self._in_turn = line.take(of), large
        return self._in_turn

    def end_turn(self) -> None:
        """Notes that the session had its turn."""
        self._in_turn = None
