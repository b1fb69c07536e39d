"""Keeps connections of which a session has read all that it had: all that waits for their sessions is looked at for
what may come out of turn now (out_of_turn.py), key by key, until a round over all of it has given nothing.

A look that gives nothing says nothing about the others: the key may have a large chunk next. Nothing may be under way
to the connection any more, so that nothing else would ask for another look.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import FREED_STREAMS_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.sessions import Session

_NONE, _ALL = -1, -1
_Connections = Mapping[str, OrderedDict["Session", None]]


class _Round:
    """What is left to look at: so many sessions after `session`, so many feeds of that one, and so many keys of the
    first feed, `queue_id`."""

    __slots__ = ("feeds", "keys", "queue_id", "session", "sessions")

    def __init__(self) -> None:
        self.sessions = _ALL
        self.session = _NONE
        self.feeds = 0
        self.queue_id = b""
        self.keys = 0


class FreedLooks:
    """Keeps a round for each such connection; the first one is next."""

    __slots__ = ("_rounds",)

    def __init__(self) -> None:
        self._rounds: OrderedDict[str, _Round] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rounds)

    def begin(self, connection: str) -> None:
        """Begins a round; one that is under way goes on from where it is, over all."""
        self._rounds.setdefault(connection, _Round()).sessions = _ALL

    def next(self, connections: _Connections, may_have: Callable[[Session], bool]) -> tuple[Session, Feed] | None:
        """Returns a session that waits for small chunks, and a feed of it: FREED_STREAMS_MAX keys of it are to be
        looked at now. None: it has to be asked again, while there are rounds. There must be one. `connections`: the
        sessions that wait for small chunks; those that were looked at go to the end. `may_have`: says whether a session
        may be given anything out of turn."""
        connection, left = self._rounds.popitem(last=False)
        waiting = connections.get(connection)
        if not waiting:
            return None
        session = next(iter(waiting))
        if left.sessions == _ALL:
            left.sessions = len(waiting)
        if session.number != left.session:
            if not left.sessions:
                return None
            left.sessions -= 1
            left.session = session.number
            left.feeds = len(session.turned_away.small) if may_have(session) else 0
        self._rounds[connection] = left
        feed = self._next_feed(session, left)
        if not left.feeds:
            waiting.move_to_end(session)
            left.session = _NONE
        return None if feed is None else (session, feed)

    @staticmethod
    def _next_feed(session: Session, left: _Round) -> Feed | None:
        feed = session.turned_away.first_small if left.feeds else None
        if feed is None:
            left.feeds = 0
            return None
        if feed.queue_id != left.queue_id:
            left.queue_id, left.keys = feed.queue_id, len(feed.lagging)
        left.keys -= FREED_STREAMS_MAX
        if left.keys <= 0:
            session.turned_away.put_last(feed)
            left.feeds -= 1
            left.queue_id = b""
        return feed

    def gave(self, session: Session, connections: _Connections) -> None:
        """Notes that the look gave something: the next session of the connection is next, in a new round."""
        waiting = connections.get(session.connection)
        if waiting and session in waiting:
            waiting.move_to_end(session)
        self.begin(session.connection)
