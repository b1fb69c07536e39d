"""Knows what comes back in turns: of sessions that ended, and of feeds that attachments left with something out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.limits import LEAVING_LOOKS_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session


class Leaving:
    """Notes sessions that end, and feeds that were left. Each chunk that is given may ask, so the answer is mostly that
    there is nothing."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._feeds = 0

    def __bool__(self) -> bool:
        """Returns whether something comes back in turns."""
        return bool(self._feeds or self._sessions)

    def loses(self, feed: Feed) -> bool:
        """Returns whether some that left a feed, or sessions that ended, may have something out of it."""
        sessions = self._sessions
        if feed.leaving or not sessions:
            return feed.leaving
        for some in (feed.attachments, feed.pullers):
            few = sessions if len(sessions) < len(some) else some
            if len(few) > LEAVING_LOOKS_MAX:
                return True  # To look at what is out costs less.
            if any(number in sessions and number in some and some[number].messages for number in few):
                return True
        return False

    def session_ends(self, session: Session) -> None:
        """Notes that what a session has out comes back from now on."""
        self._sessions[session.number] = session

    def session_ended(self, session: Session) -> None:
        """Notes that all that the session had out is back."""
        del self._sessions[session.number]

    def begin_feed(self) -> None:
        """Notes that attachments left a feed with something out."""
        self._feeds += 1

    def end_feed(self) -> None:
        """Notes that all of that is back."""
        self._feeds -= 1
        assert self._feeds >= 0
