"""Computes how many keys there are and how large they are, at the end of each interval. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import sqrt
from typing import NamedTuple

from shoal_pipeline.census.outcome import SizeCount


class Alike(NamedTuple):
    """Counts the keys whose size stays in one class (2^(class-1) < size <= 2^class) at the ends of these intervals.
    `squares`: the sum of their sizes squared."""

    from_interval: int
    to_interval: int
    size_class: int
    keys: int
    members: int
    squares: float
    largest: int


class Stocks:
    """Sums up the keys in each interval. `keys`, `memberships`, `largest`: by interval."""

    def __init__(self, intervals: int, alike: Sequence[Alike]) -> None:
        self._intervals = intervals
        self._alike = alike
        self.keys = self._running((one, one.keys) for one in alike)
        self.memberships = self._running((one, one.members) for one in alike)
        self._squares = [0.0] * intervals
        self.largest = [0] * intervals
        for one in alike:
            for number in range(one.from_interval, one.to_interval):
                self._squares[number] += one.squares
                self.largest[number] = max(self.largest[number], one.largest)

    def mean(self, number: int) -> float:
        return self.memberships[number] / self.keys[number] if self.keys[number] else 0.0

    def stddev(self, number: int) -> float:
        """Returns the standard deviation of the sizes of all keys in use."""
        if not self.keys[number]:
            return 0.0
        return sqrt(max(0.0, self._squares[number] / self.keys[number] - self.mean(number) ** 2))

    def sizes(self) -> list[SizeCount]:
        """Returns the number of keys in each size class: 1, 2, 3-4, 5-8, ..."""
        found: list[SizeCount] = []
        for size_class in sorted({one.size_class for one in self._alike}):
            keys = self._running((one, one.keys) for one in self._alike if one.size_class == size_class)
            low = (1 << size_class >> 1) + 1 if size_class else 1
            found += [SizeCount(number, low, 1 << size_class, count) for number, count in enumerate(keys) if count]
        return sorted(found, key=lambda size: (size.number, size.size_from))

    def _running(self, values: Iterable[tuple[Alike, int]]) -> list[int]:
        steps = [0] * (self._intervals + 1)
        for one, value in values:
            steps[one.from_interval] += value
            steps[one.to_interval] -= value
        return list(accumulate(steps[: self._intervals]))
