"""Keeps streams of a feed that a look left out: it ended before it came to them, as nobody who consumes the feed had
room for what is next of another stream. What is next of these may come out of turn (out_of_turn.py)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.out_of_line import finds_any
from shoal_slice_node.core.limits import NEWEST_LOOKED_AT_MAX, OUT_OF_LINE_LOOKS_MAX, PARCEL_OVERHEAD_BYTES

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.streams import Stream


class LeftOut:
    """Keeps such streams of one feed, the next one last. `consumers_left`: so many of those that consume the feed may
    still be asked whether they have any room."""

    __slots__ = ("_feed", "consumers_left", "streams")

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.consumers_left = 0
        self.streams: list[Stream] = []

    def note_all(self) -> None:
        """Notes all streams that lag."""
        self.consumers_left = len(self._feed.attachments)
        self.streams = list(reversed(self._feed.lagging.values()))

    def note_newest(self) -> None:
        """Notes a few that lag since lately: they are next."""
        lagging = self._feed.lagging
        if len(self.streams) > len(lagging):
            self.note_all()
            return
        self.consumers_left = len(self._feed.attachments)
        self.streams += reversed(list(islice(reversed(lagging.values()), NEWEST_LOOKED_AT_MAX)))

    def take(self) -> Stream:
        """Takes out the next stream. There must be one."""
        return self.streams.pop()

    def finds_consumer(self) -> bool:
        """Returns whether one of a few who consume the feed has any room. If not, others are asked next."""
        if finds_any(self._feed, PARCEL_OVERHEAD_BYTES):
            self.consumers_left = len(self._feed.attachments)
            return True
        self.consumers_left -= OUT_OF_LINE_LOOKS_MAX
        return False
