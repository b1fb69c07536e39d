"""Keeps the feeds that found no room in a session, until there is room again, or the session has its turn
(room_line.py)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class TurnedAway:
    """Keeps feeds by queue id, the first ones first. `large`: those with a chunk next that needs a turn for large ones.
    `small`: all others; what is next may be large, and is not known."""

    __slots__ = ("large", "small")

    def __init__(self) -> None:
        self.small: OrderedDict[bytes, Feed] = OrderedDict()
        self.large: OrderedDict[bytes, Feed] = OrderedDict()

    def __len__(self) -> int:
        return len(self.small) + len(self.large)

    def __contains__(self, queue_id: bytes) -> bool:
        return queue_id in self.small or queue_id in self.large

    def add(self, feed: Feed, large: bool) -> None:
        if large:
            self.small.pop(feed.queue_id, None)
            self.large[feed.queue_id] = feed
        elif feed.queue_id not in self.large:
            self.small[feed.queue_id] = feed

    def forget(self, queue_id: bytes) -> None:
        self.small.pop(queue_id, None)
        self.large.pop(queue_id, None)

    def clear(self) -> None:
        self.small.clear()
        self.large.clear()

    def of(self, large: bool) -> OrderedDict[bytes, Feed]:
        """Returns those with a large chunk next, or the others."""
        return self.large if large else self.small

    def next(self, large: bool) -> Feed:
        """Returns the first one of these, and forgets that it was turned away. There must be one."""
        return self.of(large).popitem(last=False)[1]
