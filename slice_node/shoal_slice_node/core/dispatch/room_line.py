"""Lets sessions wait for room in the share of deliveries, and then take turns.

While the share is full, no session is given anything. Those that were turned away wait in line, connections in turn,
and the sessions of each. Connections to which nothing is under way come first, and the last part of the share is only
for them: clients that read have their turn though others do not. While any session waits, only the one whose turn it is
is given something: else sessions that come later would take what others let go. A turn brings what the session has room
for, up to a bound; for more it stands in line again.

A line moves whenever the share is not full. A share that is full is held by sessions that read, and let it go, or by
sessions that do not, and end (adapters/writers.py). Not here: how a session uses its turn (pump).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import NEWCOMERS_PARTS, TURNS_PER_TURN_OF_ALL

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.shares import Share


class RoomLine:
    """Keeps the line for a share."""

    __slots__ = ("_holding", "_in_turn", "_lines", "_share", "_turns", "_without")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lines: OrderedDict[str, OrderedDict[Session, None]] = OrderedDict()
        """The sessions that wait, by connection; the first connection is next. None is empty."""
        self._without: OrderedDict[str, None] = OrderedDict()
        """Those of these connections to which nothing is under way; the first one is next."""
        self._holding: Counter[str] = Counter()
        """How many sessions of each connection hold something."""
        self._turns = 0
        self._in_turn: Session | None = None

    def __len__(self) -> int:
        """Returns how many connections may have their turn now: none while the share is full."""
        if self._share.used_bytes < self._most_bytes:
            return len(self._lines)
        return 0 if self.is_full else len(self._without)

    def __contains__(self, session: Session) -> bool:
        return session in self._lines.get(session.connection, ())

    @property
    def waiting(self) -> int:
        """Returns the number of sessions that wait."""
        return sum(map(len, self._lines.values()))

    @property
    def is_full(self) -> bool:
        """Returns whether no session may be given anything now."""
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

    def most_bytes(self, session: Session) -> int:
        """Returns how much of the share may be used while the session is given more."""
        return self._most_bytes if session.connection in self._holding else self._share.limit_bytes

    def lets_in(self, session: Session) -> bool:
        """Returns whether the session may be given something now."""
        if self._lines and session is not self._in_turn:
            return False
        return self._share.used_bytes < self.most_bytes(session)

    def has_room_for_live(self, session: Session) -> bool:
        """Returns whether the session may be given a live chunk, which cannot wait."""
        return self._share.used_bytes < self.most_bytes(session)

    def join(self, session: Session) -> None:
        """Lets the session wait, if it does not."""
        connection = session.connection
        self._lines.setdefault(connection, OrderedDict())[session] = None
        if connection not in self._holding:
            self._without[connection] = None

    def leave(self, session: Session) -> None:
        """Forgets a session that has ended."""
        line = self._lines.get(session.connection)
        if line is not None:
            line.pop(session, None)
            if not line:
                del self._lines[session.connection]
                self._without.pop(session.connection, None)

    def holds(self, session: Session) -> None:
        """Notes that something is under way to a session to which nothing was."""
        self._holding[session.connection] += 1
        self._without.pop(session.connection, None)

    def holds_nothing(self, session: Session) -> None:
        """Notes that nothing is under way to a session any more."""
        connection = session.connection
        self._holding[connection] -= 1
        if not self._holding[connection]:
            del self._holding[connection]
            if connection in self._lines:
                self._without[connection] = None

    def begin_turn(self) -> Session:
        """Returns the session whose turn it is, which does not wait any more. There must be one (see `__len__`)."""
        self._turns += 1
        of_all = (self._turns % TURNS_PER_TURN_OF_ALL == 0 and not self.is_nearly_full) or not self._without
        connection = next(iter(self._lines if of_all else self._without))
        line = self._lines.pop(connection)
        session, _ = line.popitem(last=False)
        had_nothing = connection in self._without
        self._without.pop(connection, None)
        if line:
            self._lines[connection] = line
            if had_nothing:
                self._without[connection] = None
        self._in_turn = session
        return session

    def end_turn(self) -> None:
        """Notes that the session had its turn."""
        self._in_turn = None
