"""Keeps feeds that get only the lowest message of each stream with gaps, as there is no memory for more done ranges:
they are served anew once there is."""

from __future__ import annotations

from collections import OrderedDict

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.range_room import RangeRoom


class ShortFeeds:
    """Keeps the feeds. Its length: how many may be served anew now."""

    __slots__ = ("_feeds", "_room")

    def __init__(self, room: RangeRoom) -> None:
        self._feeds: OrderedDict[Feed, None] = OrderedDict()
        self._room = room

    def __len__(self) -> int:
        return 0 if self._room.is_short else len(self._feeds)

    def __contains__(self, feed: Feed) -> bool:
        return feed in self._feeds

    def note(self, feed: Feed) -> None:
        """Notes a feed that was served without memory for its ranges: to be served may have made some."""
        if feed.ranges and feed.lagging:
            self._feeds[feed] = None

    def forget(self, feed: Feed) -> None:
        """Notes that a feed has ended."""
        self._feeds.pop(feed, None)

    def take(self) -> Feed:
        """Returns the feed that was noted first, and forgets it."""
        return self._feeds.popitem(last=False)[0]
