"""Keeps connections of which a session has read all that it had, and some of those that had found no room while others
let go of theirs: all that waits for their sessions is looked at for what may come out of turn now (out_of_turn.py), key
by key, until a round over all of it has given nothing.

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

_NONE = -1
_MayHave = Callable[["Session"], bool]


class _Round:
    """Counts what is left to look at: so many sessions after the one of number `_session`, None all of them; so many
    feeds of that one, and so many keys of the first feed, that of `_queue_id`."""

    __slots__ = ("_feeds", "_keys", "_queue_id", "_session", "_sessions")

    def __init__(self) -> None:
        self._sessions: int | None = None
        self._session = _NONE
        self._feeds = 0
        self._queue_id = b""
        self._keys = 0

    def go_over_all(self) -> None:
        self._sessions = None

    def step(self, waiting: OrderedDict[Session, None], may_have: _MayHave) -> tuple[Session, Feed | None] | None:
        """Returns the session that is looked at, and its feed, if it has one to look at. None: the round is over."""
        session = next(iter(waiting))
        if self._sessions is None:
            self._sessions = len(waiting)
        if session.number != self._session:
            if not self._sessions:
                return None
            self._sessions -= 1
            self._session = session.number
            self._feeds = len(session.turned_away.small) if may_have(session) else 0
        feed = session.turned_away.first_small if self._feeds else None
        if feed is not None:
            self._look_at(session, feed)
        if feed is None or not self._feeds:
            waiting.move_to_end(session)
            self._session = _NONE
        return session, feed

    def _look_at(self, session: Session, feed: Feed) -> None:
        """Counts some keys of a feed. If none is left, the session's next feed is next."""
        if feed.queue_id != self._queue_id:
            self._queue_id, self._keys = feed.queue_id, len(feed.lagging)
        self._keys -= FREED_STREAMS_MAX
        if self._keys <= 0:
            session.turned_away.put_last(feed)
            self._feeds -= 1
            self._queue_id = b""


class FreedLooks:
    """Keeps a round for each such connection; the first one is next. Its methods are given the sessions that wait for
    small chunks, by connection: those that were looked at go to the end."""

    __slots__ = ("_rounds",)

    def __init__(self) -> None:
        self._rounds: OrderedDict[str, _Round] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rounds)

    def begin(self, connection: str) -> None:
        """Begins a round; one that is under way goes on from where it is, over all."""
        self._rounds.setdefault(connection, _Round()).go_over_all()

    def next(
        self, connections: Mapping[str, OrderedDict[Session, None]], may_have: _MayHave
    ) -> tuple[Session, Feed] | None:
        """Returns a session, and a feed of it: FREED_STREAMS_MAX keys of it are to be looked at now. None: it has to be
        asked again, while there are rounds. There must be one. `may_have`: says whether a session may be given anything
        out of turn."""
        connection, left = self._rounds.popitem(last=False)
        waiting = connections.get(connection)
        found = left.step(waiting, may_have) if waiting else None
        if found is None:
            return None
        self._rounds[connection] = left
        session, feed = found
        return None if feed is None else (session, feed)

    def gave(self, connections: Mapping[str, OrderedDict[Session, None]], session: Session) -> None:
        """Notes that the look gave something: the next session of the connection is next, in a new round."""
        waiting = connections.get(session.connection)
        if waiting and session in waiting:
            waiting.move_to_end(session)
        self.begin(session.connection)
