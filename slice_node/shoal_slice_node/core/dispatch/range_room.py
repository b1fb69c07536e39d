"""Counts the memory of done ranges, and of stretches to be given again, in the share of attached queues; and knows the
queues that have some. Not here: which sessions end where there is none (relief.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import (
    HEAVY_RANGES,
    OVERDRAWN_RANGES_PART,
    RANGE_BYTES,
    RANGES_PART,
    REFUSED_ROOM_PART,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class RangeRoom:
    """Keeps the count. `feeds`: those with ranges. `pulled_bytes`: what the ranges of queues take that sessions only
    pull from, and that have more than HEAVY_RANGES."""

    __slots__ = ("_pulled", "_ranges", "_refused", "_share", "feeds")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._ranges = 0
        self._pulled = 0
        self._refused = False
        """Something that would fit what is made room found none, since sessions that are to end were looked for last,
        or it was seen that there is no need."""
        self.feeds: dict[Feed, None] = {}

    @property
    def is_short(self) -> bool:
        """Returns whether there is no memory for more ranges."""
        return self._share.free_bytes < 0

    @property
    def ranges_bytes(self) -> int:
        return RANGE_BYTES * self._ranges

    @property
    def part_bytes(self) -> int:
        """Returns what ranges may take, which others cannot take from them."""
        return self._share.limit_bytes // RANGES_PART

    @property
    def excess_bytes(self) -> int:
        """Returns how much less ranges should take: what is used beyond the share, or, if something found no room,
        beyond most of it; but no more than what ranges take beyond their part; 0 or less: nothing."""
        share = self._share
        needed_bytes = share.limit_bytes // REFUSED_ROOM_PART if self._refused else 0
        return min(needed_bytes - share.free_bytes, self.ranges_bytes - self.part_bytes)

    @property
    def is_overdrawn(self) -> bool:
        """Returns whether ranges must take less."""
        share = self._share
        is_beyond = -share.free_bytes > share.limit_bytes // OVERDRAWN_RANGES_PART
        return self.excess_bytes > 0 and (self._refused or is_beyond)

    def note_refused(self, needed_bytes: int) -> None:
        """Notes that a queue, a consumer, a binding or a watch, which takes so much, found no room. Must not be called
        for what is refused for its own ranges: those of others need not give way to them."""
        if needed_bytes <= self._share.limit_bytes // REFUSED_ROOM_PART:
            self._refused = True

    def begin_anew(self) -> None:
        """Forgets what was refused: sessions that are to end for it were looked for, or it was no reason to."""
        self._refused = False

    def count(self, feed: Feed, more: int) -> None:
        """Notes that a feed has so many ranges more, or less if it is negative."""
        self._ranges += more
        if more > 0:
            self._share.hold(RANGE_BYTES * more)
            self.feeds[feed] = None
        else:
            self._share.let_go(-RANGE_BYTES * more)
            if not feed.ranges:
                self.feeds.pop(feed, None)

    @property
    def pulled_bytes(self) -> int:
        return RANGE_BYTES * self._pulled

    def count_pulled(self, more: int) -> None:
        """Notes that so many ranges more, or less, are of queues with many that sessions only pull from."""
        self._pulled += more


def counted_as_pulled(feed: Feed) -> int:
    """Returns how many of its ranges count as those of a queue that sessions only pull from."""
    return feed.ranges if feed.ranges > HEAVY_RANGES and feed.pullers and not feed.attachments else 0
