"""Keeps the feeds that found no room in a session, until there is room again, or the session has its turn
(room_line.py)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import LARGE_DELIVERY_BYTES

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class TurnedAway:
    """Keeps feeds by queue id, the first ones first. `large`: those of which a stream has a large chunk next, which
    waits for a turn for these, or may have. `small`: those of which it is not known that nothing else is next: a feed
    may be in both."""

    __slots__ = ("_offsets", "large", "small")

    def __init__(self) -> None:
        self.small: OrderedDict[bytes, Feed] = OrderedDict()
        self.large: OrderedDict[bytes, Feed] = OrderedDict()
        self._offsets: dict[bytes, OrderedDict[bytes, int]] = {}
        """The offset of the large chunk of each such stream that is known, by queue id and key id."""

    def __len__(self) -> int:
        return len(self.small) + len(self.large)

    def __contains__(self, queue_id: bytes) -> bool:
        return queue_id in self.small or queue_id in self.large

    def add(self, feed: Feed, cost_bytes: int) -> None:
        """Notes a feed that has a chunk next in one stream which takes so much memory; of others nothing is known."""
        self.small[feed.queue_id] = feed
        if cost_bytes > LARGE_DELIVERY_BYTES:
            self.expect_large(feed)

    def expect_large(self, feed: Feed) -> None:
        """Notes a feed that may have a large chunk next."""
        self.large[feed.queue_id] = feed
        self._offsets.setdefault(feed.queue_id, OrderedDict())

    def add_large(self, feed: Feed, key_id: bytes, offset: int) -> None:
        """Notes a feed with a large chunk next in the stream of this key, at this offset."""
        self.large[feed.queue_id] = feed
        self._offsets.setdefault(feed.queue_id, OrderedDict())[key_id] = offset

    def is_large(self, queue_id: bytes, key_id: bytes, offset: int) -> bool:
        """Returns whether a large chunk is next in this stream, if this offset is."""
        offsets = self._offsets.get(queue_id)
        return offsets is not None and offsets.get(key_id) == offset

    def knows_large(self, queue_id: bytes) -> bool:
        """Returns whether it is known of streams of this queue that a large chunk is next."""
        return bool(self._offsets.get(queue_id))

    def take_large(self, queue_id: bytes) -> bytes:
        """Returns the key of the first one of these streams, and forgets it. There must be one."""
        return self._offsets[queue_id].popitem(last=False)[0]

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
        """Returns the first one of these, and forgets that it was turned away. There must be one. A call of
        `forget_large_chunks` must follow."""
        return self.of(large).popitem(last=False)[1]

    @property
    def first_small(self) -> Feed | None:
        """Returns the first one of those with something small next; None: there is none."""
        return next(iter(self.small.values()), None)

    def put_last(self, feed: Feed) -> None:
        """Puts a feed behind the others of those with something small next. It must be one of these."""
        self.small.move_to_end(feed.queue_id)

    def forget_large_chunks(self, feed: Feed) -> None:
        """Forgets which chunks of a feed are large, unless it waits for a turn for these."""
        if feed.queue_id not in self.large:
            self._offsets.pop(feed.queue_id, None)
