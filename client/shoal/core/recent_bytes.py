"""Remembers how large the deliveries were that came last, to tell how many bytes of a queue are unacked.

Only the last ones, so the number may be too low where many queues take turns; it is never too high.
"""

from __future__ import annotations

from collections import deque

from shoal.core.offset_ranges import Ranges, count, with_range
from shoal.core.repeats import Repeats
from shoal.limits import RECENT_DELIVERIES_MAX


class RecentBytes:
    """Remembers deliveries of one slice. A delivery counts for the first of its handles."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: deque[tuple[int, bytes, int, int, int]] = deque(maxlen=RECENT_DELIVERIES_MAX)
        """Handle, key, first <= offset < end, bytes of bodies."""

    def add(self, handle: int, key: bytes, first: int, end: int, body_bytes: int) -> None:
        """Remembers offsets first <= offset < end of a key that were handed out for a handle."""
        self._last.append((handle, key, first, end, body_bytes))

    def unacked(self, handle: int, repeats: Repeats) -> int:
        """Returns how many bytes were handed out for a handle and not acked; of a delivery that is acked in part, its
        share."""
        seen: dict[bytes, Ranges] = {}
        found = 0
        for one, key, first, end, body_bytes in reversed(self._last):
            if one == handle:
                seen[key], new = with_range(seen.get(key, ()), first, end)
                left = sum(count(repeats.unacked_within(key, handle, low, high)) for low, high in new)
                found += body_bytes * left // (end - first)
        return found
