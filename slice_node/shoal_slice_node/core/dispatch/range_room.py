"""Counts the memory of done ranges, and of stretches to be given again, in the share of attached queues; and knows the
queues that have much of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import HEAVY_RANGES, RANGE_BYTES, SMALL_PULLS_PART

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed


class RangeRoom:
    """Keeps the count. `heavy`: feeds with more than HEAVY_RANGES."""

    __slots__ = ("_ranges", "_share", "heavy")

    def __init__(self, share: Share) -> None:
        self._share = share
        self._ranges = 0
        self.heavy: dict[Feed, None] = {}

    @property
    def is_short(self) -> bool:
        """Returns whether there is no memory for more ranges."""
        return self._share.free_bytes < 0

    def count(self, feed: Feed, before: int) -> None:
        """Notes that a feed has other ranges than `before`."""
        more = feed.ranges - before
        self._ranges += more
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
        """Returns feeds that could make room, if the share is overdrawn and ranges have more than half of it: those of
        the sessions that have the most ranges first."""
        share = self._share
        over_bytes = share.used_bytes - share.limit_bytes - share.limit_bytes // SMALL_PULLS_PART
        left_bytes = min(over_bytes, RANGE_BYTES * self._ranges - share.limit_bytes // 2)
        if left_bytes <= 0:
            return []
        of_session: Counter[int] = Counter()
        for feed in self.heavy:
            of_session.update(dict.fromkeys((*feed.attachments, *feed.pullers), feed.ranges))

        def weight(feed: Feed) -> tuple[int, int]:
            return max([of_session[number] for number in (*feed.attachments, *feed.pullers)], default=0), feed.ranges

        found: list[Feed] = []
        for feed in sorted(self.heavy, key=weight, reverse=True):
            if left_bytes <= 0:
                break
            found.append(feed)
            left_bytes -= RANGE_BYTES * feed.ranges
        return found
