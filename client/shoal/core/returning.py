"""Follows the messages of one key that an inbox gave back, so that nothing of the key overtakes them.

A slice gives back the first of them first. But others may have taken it, or its time to live is over; and what was on
its way when it went back comes before it, some of it twice, if an ack timeout ended meanwhile. So all that is behind
the first goes back, too, until that comes again; or, if it does not, until the first of those that do come has come
twice. Pure.
"""

from __future__ import annotations

from shoal.core.offset_ranges import Ranges, count, with_range, within
from shoal_contract.limits import WINDOW_MESSAGES_DEFAULT

_TIMES = 2
"""How often the first of those that come again is sent back."""
_ROUNDS = 3
"""How often all that was given back may come again before it is taken as it comes: others take some of it each time."""
_MESSAGES = 3 * WINDOW_MESSAGES_DEFAULT
"""How many messages go back at most: no more can have been on their way when the first went back."""


class Returning:
    """Is what one queue has on its way back of one key. `ranges`: its offsets, at least one."""

    __slots__ = ("_again", "_messages", "_repeats", "_times", "ranges")

    def __init__(self) -> None:
        self.ranges: Ranges = ()
        self._again = 0
        """The lowest offset that came again; 0: none did."""
        self._times = 0
        self._repeats = 0
        """How many messages came again."""
        self._messages = 0
        """How many came, and went back."""

    def add(self, first: int, end: int) -> None:
        """Notes that offsets first <= offset < end go back."""
        self.ranges = with_range(self.ranges, first, end)[0]

    def is_before(self, end: int) -> bool:
        """Returns whether what ends before this offset is before all that is on its way back."""
        return end <= self.ranges[0][0]

    def is_over(self, first: int, end: int) -> bool:
        """Returns whether offsets first <= offset < end, which come now, may be handed out: nothing before them is to
        come. If not, they go back."""
        if first <= self.ranges[0][0]:
            return True
        if within(self.ranges, first, end) and self._came_again(first, end):
            return True
        self._messages += end - first
        if self._messages > _MESSAGES:
            return True
        self.add(first, end)
        return False

    def _came_again(self, first: int, end: int) -> bool:
        self._repeats += end - first
        if not self._again or first < self._again:
            self._again, self._times = first, 0
        if first == self._again:
            self._times += 1
        return self._times > _TIMES or self._repeats > _ROUNDS * count(self.ranges)
