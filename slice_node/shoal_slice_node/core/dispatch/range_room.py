"""Counts the memory of done ranges, and of stretches to be given again, in the share of attached queues; and knows the
queues that have some. Not here: which sessions end where there is none (relief.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import HEAVY_RANGES, RANGE_BYTES, RANGES_PART, SMALL_PULLS_PART

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
        """Some attach found no room since the last look for what is to end."""
        self.feeds: dict[Feed, None] = {}

    @property
    def is_short(self) -> bool:
        """Returns whether there is no memory for more ranges."""
        return self._share.free_bytes < 0

    @property
    def excess_bytes(self) -> int:
        """Returns how much less ranges should take: what is used beyond the share, or, if an attach was refused, beyond
        most of it; but no more than what ranges take beyond their part, which others cannot take from them; 0 or less:
        nothing."""
        share = self._share
        needed_bytes = share.limit_bytes // SMALL_PULLS_PART if self._refused else 0
        return min(needed_bytes - share.free_bytes, RANGE_BYTES * self._ranges - share.limit_bytes // RANGES_PART)

    @property
    def is_overdrawn(self) -> bool:
        """Returns whether ranges must take less: small pulls, too, may take a little more than there is."""
        share = self._share
        return self.excess_bytes > 0 and (self._refused or -share.free_bytes > share.limit_bytes // SMALL_PULLS_PART)

    def note_refused(self) -> None:
        """Notes that an attach found no room."""
        self._refused = True

    def begin_anew(self) -> None:
        """Notes that what is to end for it was looked for."""
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
