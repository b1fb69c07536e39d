"""Lets sessions wait for room in the share of deliveries, and then take turns.

While the share is full, no session is given anything. Those that were turned away wait in line, connections in turn,
and the sessions of each. While any waits, only the one whose turn it is is given something: else sessions that come
later would take what others let go. A turn brings what the session has room for, up to a bound; for more it stands in
line again.

A line moves whenever the share is not full. A share that is full is held by sessions that read, and let it go, or by
sessions that do not, and end (adapters/writers.py). Not here: how a session uses its turn (pump).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.shares import Share


class RoomLine:
    """Keeps the line for a share."""

    __slots__ = ("_in_turn", "_lines", "_share")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._lines: OrderedDict[str, OrderedDict[Session, None]] = OrderedDict()
        """The sessions that wait, by connection; the first connection is next. None is empty."""
        self._in_turn: Session | None = None

    def __len__(self) -> int:
        """Returns how many connections may have their turn now: none while the share is full."""
        return 0 if self.is_full else len(self._lines)

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
    def is_crowded(self) -> bool:
        """Returns whether a session must wait for its turn."""
        return bool(self._lines) or self.is_full

    def lets_in(self, session: Session) -> bool:
        """Returns whether the session may be given something now."""
        return not self.is_full and (not self._lines or session is self._in_turn)

    def join(self, session: Session) -> None:
        """Lets the session wait, if it does not."""
        self._lines.setdefault(session.connection, OrderedDict())[session] = None

    def leave(self, session: Session) -> None:
        """Forgets a session that has ended."""
        line = self._lines.get(session.connection)
        if line is not None:
            line.pop(session, None)
            if not line:
                del self._lines[session.connection]

    def begin_turn(self) -> Session:
        """Returns the session whose turn it is, which does not wait any more. There must be one."""
        connection, line = self._lines.popitem(last=False)
        session, _ = line.popitem(last=False)
        if line:
            self._lines[connection] = line
        self._in_turn = session
        return session

    def end_turn(self) -> None:
        """Notes that the session had its turn."""
        self._in_turn = None
