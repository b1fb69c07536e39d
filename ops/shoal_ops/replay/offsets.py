"""Maps message numbers of one group to offsets of its key, as the receipts told them. It keeps runs; mostly there is
one. Pure."""

from __future__ import annotations

from bisect import bisect_right

from shoal_ops.replay.expectation import Window
from shoal_ops.replay.ranges import Ranges, merged


class Offsets:
    """Keeps the offset of each message. Messages that were not kept (offset 0) are left out."""

    __slots__ = ("_ends", "_firsts", "_offsets")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        """Run i has the numbers _firsts[i] <= number < _ends[i]; ascending."""
        self._offsets: list[int] = []
        """The offset of the first message of each run."""

    def record(self, number: int, offset: int) -> None:
        """Adds the next message's offset. Numbers come in ascending order."""
        if not offset:
            return
        if self._ends and self._ends[-1] == number and self._offsets[-1] + number - self._firsts[-1] == offset:
            self._ends[-1] += 1
            return
        self._firsts.append(number)
        self._ends.append(number + 1)
        self._offsets.append(offset)

    def ranges(self, windows: list[Window]) -> Ranges:
        """Returns the offsets of the messages in these windows."""
        return merged((low, high) for first, end in windows for low, high, _ in self.runs(first, end))

    def runs(self, first: int, end: int) -> list[tuple[int, int, int]]:
        """Returns (first offset, end offset, first number) of each run among the messages first <= number < end."""
        found: list[tuple[int, int, int]] = []
        index = max(0, bisect_right(self._firsts, first) - 1)
        while index < len(self._firsts) and self._firsts[index] < end:
            low, high = max(first, self._firsts[index]), min(end, self._ends[index])
            if low < high:
                shift = self._offsets[index] - self._firsts[index]
                found.append((low + shift, high + shift, low))
            index += 1
        return found
