"""Knows what comes back in turns: of sessions that ended, and of feeds that attachments left with something out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import LEAVING_LOOKS_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.streams import Stream


class Leaving:
    """Notes sessions that end, and feeds that were left. Each chunk that is given may ask, so the answer is mostly that
    there is nothing."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._feeds = 0

    def __bool__(self) -> bool:
        """Returns whether something comes back in turns."""
        return bool(self._feeds or self._sessions)

    def loses(self, stream: Stream) -> tuple[bool, int]:
        """Returns whether some that left a stream's feed, or sessions that ended, may have something out of it; and how
        many consumers were looked at for that: none, if to look at what is out of the stream costs less."""
        feed, sessions = stream.feed, self._sessions
        if feed.leaving or not sessions:
            return feed.leaving, 0
        both = (feed.attachments, feed.pullers)
        looks = sum(min(len(sessions), len(some)) for some in both)
        if looks > max(LEAVING_LOOKS_MAX, len(stream.out)):
            return True, 0
        for some in both:
            few = sessions if len(sessions) < len(some) else some
            if any(number in sessions and number in some and some[number].messages for number in few):
                return True, looks
        return False, looks

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
