"""Counts the memory of done ranges, and of stretches to be given again, in the share of attached queues; and knows the
queues that have much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import HEAVY_RANGES, RANGE_BYTES

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class RangeRoom:
    """Keeps the count. `heavy`: feeds with more than HEAVY_RANGES."""

    __slots__ = ("_share", "heavy")

    def __init__(self, share: Share) -> None:
        self._share = share
        self.heavy: dict[Feed, None] = {}

    @property
    def is_short(self) -> bool:
        """Returns whether there is no memory for more ranges."""
        return self._share.free_bytes < 0

    def count(self, feed: Feed, before: int) -> None:
        """Notes that a feed has other ranges than `before`."""
        more = feed.ranges - before
        if more > 0:
            self._share.hold(RANGE_BYTES * more)
        else:
            self._share.let_go(-RANGE_BYTES * more)
        if (before > HEAVY_RANGES) != (feed.ranges > HEAVY_RANGES):
            if more > 0:
                self.heavy[feed] = None
            else:
                del self.heavy[feed]

    def heaviest(self) -> list[Feed]:
        """Returns feeds that could make room for what is too much, those with the most ranges first."""
        left_bytes = -self._share.free_bytes
        found: list[Feed] = []
        by_ranges = sorted(self.heavy, key=lambda feed: feed.ranges, reverse=True) if left_bytes > 0 else ()
        for feed in by_ranges:
            if left_bytes <= 0:
                break
            found.append(feed)
            left_bytes -= RANGE_BYTES * feed.ranges
        return found
