"""Lets sessions wait for room in the share of deliveries, and then take turns.

While the share is full, no session is given anything. Those that were turned away wait in line, connections in turn,
and the sessions of each. Connections to which nothing is under way come first, and the last part of the share is only
for them: clients that read have their turn though others do not. While any session waits, only the one whose turn it is
is given something: else sessions that come later would take what others let go. A turn brings what the session has room
for, up to a bound; for more it stands in line again.

Connections that were given little at a time are light. They come first, and may exceed the share by a part: clients of
small messages do not wait until those of large ones have read.

A line moves whenever the share is not full. A share that is full is held by sessions that read, and let it go, or by
sessions that do not, and end (adapters/writers.py). Not here: how a session uses its turn (pump).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import (
    LIGHT_BYTES,
    LIGHT_CONNECTIONS_MAX,
    LIGHT_PARTS,
    NEWCOMERS_PARTS,
    TURNS_PER_TURN_OF_ALL,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.shares import Share


class RoomLine:
    """Keeps the line for a share."""

    __slots__ = (
        "_held_bytes",
        "_holding",
        "_in_turn",
        "_known_light",
        "_light",
        "_lines",
        "_share",
        "_turns",
        "_without",
    )

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lines: OrderedDict[str, OrderedDict[Session, None]] = OrderedDict()
        """The sessions that wait, by connection; the first connection is next. None is empty."""
        self._without: OrderedDict[str, None] = OrderedDict()
        """Those of these connections to which nothing is under way, and that are not light; the first one is next."""
        self._light: OrderedDict[str, None] = OrderedDict()
        """The same of light ones."""
        self._known_light: OrderedDict[str, None] = OrderedDict()
        """Connections that are light, the latest ones."""
        self._holding: Counter[str] = Counter()
        """How many sessions of each connection hold something."""
        self._turns = 0
        self._in_turn: Session | None = None
        self._held_bytes = 0
        """What was under way to the session whose turn it is, before."""

    def __len__(self) -> int:
        """Returns how many connections may have their turn now: none while the share is full."""
        if self._share.used_bytes < self._most_bytes:
            return len(self._lines)
        if not self.is_full:
            return len(self._without) + len(self._light)
        return len(self._light) if self._share.used_bytes < self._most_light_bytes else 0

    def __contains__(self, session: Session) -> bool:
        return session in self._lines.get(session.connection, ())

    @property
    def waiting(self) -> int:
        """Returns the number of sessions that wait."""
        return sum(map(len, self._lines.values()))

    @property
    def is_full(self) -> bool:
        """Returns whether only light connections may be given something."""
        return self._share.used_bytes >= self._share.limit_bytes

    @property
    def is_nearly_full(self) -> bool:
        """Returns whether only connections to which nothing is under way may be given something."""
        return self._share.used_bytes >= self._most_bytes

    @property
    def is_crowded(self) -> bool:
        """Returns whether some sessions must wait."""
        return bool(self._lines) or self.is_nearly_full

    @property
    def _most_bytes(self) -> int:
        limit_bytes = self._share.limit_bytes
        return limit_bytes - limit_bytes // NEWCOMERS_PARTS

    @property
    def _most_light_bytes(self) -> int:
        return self._share.limit_bytes + self._share.limit_bytes // LIGHT_PARTS

    def most_bytes(self, session: Session) -> int:
        """Returns how much of the share may be used while the session is given more."""
        if session is self._in_turn:
            light = session.connection in self._known_light
            return self._most_light_bytes if light else self._share.limit_bytes
        return self._most_bytes if session.connection in self._holding else self._share.limit_bytes

    def lets_in(self, session: Session) -> bool:
        """Returns whether the session may be given something now."""
        if self._lines and session is not self._in_turn:
            return False
        return self._share.used_bytes < self.most_bytes(session)

    def has_room_for_live(self, session: Session) -> bool:
        """Returns whether the session may be given a live chunk, which cannot wait."""
        light = session.connection in self._known_light
        return self._share.used_bytes < (self._most_light_bytes if light else self.most_bytes(session))

    def join(self, session: Session) -> None:
        """Lets the session wait, if it does not."""
        connection = session.connection
        self._lines.setdefault(connection, OrderedDict())[session] = None
        if connection not in self._holding:
            self._note_without(connection)

    def _note_without(self, connection: str) -> None:
        (self._light if connection in self._known_light else self._without)[connection] = None

    def _forget_without(self, connection: str) -> bool:
        """Returns whether nothing was under way to the connection."""
        known = connection in self._without or connection in self._light
        self._without.pop(connection, None)
        self._light.pop(connection, None)
        return known

    def leave(self, session: Session) -> None:
        """Forgets a session that has ended."""
        line = self._lines.get(session.connection)
        if line is not None:
            line.pop(session, None)
            if not line:
                del self._lines[session.connection]
                self._forget_without(session.connection)

    def holds(self, session: Session, cost_bytes: int) -> None:
        """Notes that so much is under way to a session to which nothing was."""
        self._note_given(session.connection, cost_bytes)
        self._holding[session.connection] += 1
        self._forget_without(session.connection)

    @property
    def holding(self) -> int:
        """Returns the number of connections to which something is under way."""
        return len(self._holding)

    def holds_nothing(self, session: Session) -> None:
        """Notes that nothing is under way to a session any more."""
        connection = session.connection
        self._holding[connection] -= 1
        if not self._holding[connection]:
            del self._holding[connection]
            if connection in self._lines:
                self._note_without(connection)

    def begin_turn(self) -> Session:
        """Returns the session whose turn it is, which does not wait any more. There must be one (see `__len__`)."""
        self._turns += 1
        first = self._light or (self._without if not self.is_full else ())
        of_all = (self._turns % TURNS_PER_TURN_OF_ALL == 0 and not self.is_nearly_full) or not first
        connection = next(iter(self._lines if of_all else first))
        line = self._lines.pop(connection)
        session, _ = line.popitem(last=False)
        had_nothing = self._forget_without(connection)
        if line:
            self._lines[connection] = line
            if had_nothing:
                self._note_without(connection)
        self._in_turn, self._held_bytes = session, session.under_way_bytes
        return session

    def end_turn(self) -> None:
        """Notes that the session had its turn."""
        assert self._in_turn is not None
        connection = self._in_turn.connection
        was_without = self._forget_without(connection)
        given_bytes = self._in_turn.under_way_bytes - self._held_bytes
        if given_bytes:
            self._note_given(connection, given_bytes)
        if was_without:
            self._note_without(connection)
        self._in_turn = None

    def _note_given(self, connection: str, cost_bytes: int) -> None:
        """Notes whether a connection is light."""
        if cost_bytes > LIGHT_BYTES:
            self._known_light.pop(connection, None)
        elif connection not in self._known_light:
            self._known_light[connection] = None
            if len(self._known_light) > LIGHT_CONNECTIONS_MAX:
                self._known_light.popitem(last=False)
