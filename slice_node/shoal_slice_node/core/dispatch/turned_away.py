"""Keeps the feeds that found no room in a session, until there is room again, or the session has its turn
(room_line.py)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class TurnedAway:
    """Keeps feeds by queue id, the first ones first. `large`: those of which a stream has a large chunk next, which
    waits for a turn for these. `small`: those with something else next, which may be large too: a feed may be in both.
    """

    __slots__ = ("_offsets", "large", "small")

    def __init__(self) -> None:
        self.small: OrderedDict[bytes, Feed] = OrderedDict()
        self.large: OrderedDict[bytes, Feed] = OrderedDict()
        self._offsets: dict[bytes, dict[bytes, int]] = {}
        """The offset of the large chunk of each such stream, by queue id and key id."""

    def __len__(self) -> int:
        return len(self.small) + len(self.large)

    def __contains__(self, queue_id: bytes) -> bool:
        return queue_id in self.small or queue_id in self.large

    def add(self, feed: Feed) -> None:
        """Notes a feed of which it is not known what is next."""
        self.small[feed.queue_id] = feed

    def add_large(self, feed: Feed, key_id: bytes, offset: int) -> None:
        """Notes a feed with a large chunk next in the stream of this key, at this offset."""
        self.large[feed.queue_id] = feed
        self._offsets.setdefault(feed.queue_id, {})[key_id] = offset

    def is_large(self, queue_id: bytes, key_id: bytes, offset: int) -> bool:
        """Returns whether a large chunk is next in this stream, if this offset is."""
        offsets = self._offsets.get(queue_id)
        return offsets is not None and offsets.get(key_id) == offset

    def forget(self, queue_id: bytes) -> None:
        self.small.pop(queue_id, None)
        self.large.pop(queue_id, None)
        self._offsets.pop(queue_id, None)

    def clear(self) -> None:
        self.small.clear()
        self.large.clear()
        self._offsets.clear()

    def of(self, large: bool) -> OrderedDict[bytes, Feed]:
        """Returns those with a large chunk next, or the others."""
        return self.large if large else self.small

    def next(self, large: bool) -> Feed:
        """Returns the first one of these, and forgets that it was turned away. There must be one."""
        queue_id, feed = self.of(large).popitem(last=False)
        if large:
            del self._offsets[queue_id]
        return feed
