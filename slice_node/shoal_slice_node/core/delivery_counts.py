"""Keeps how often messages of a binding were delivered and came back: sorted disjoint ranges of offsets, each with its
count. What is not in a range was never counted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple


class Counted(NamedTuple):
    """Says that each of the offsets first <= o < to was delivered `times` times."""

    first: int
    to: int
    times: int


_FIRST, _TO = attrgetter("first"), attrgetter("to")


class DeliveryCounts:
    """Keeps the counts. Invariant: ranges ascend and do not overlap; touching ranges have different counts."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Sequence[Counted] = ()) -> None:
        """Begins with ranges that hold the invariant."""
        self._ranges = list(ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeliveryCounts) and self._ranges == other._ranges

    def __repr__(self) -> str:
        return f"DeliveryCounts({[tuple(one) for one in self._ranges]})"

    def __iter__(self) -> Iterator[Counted]:
        return iter(self._ranges)

    @property
    def end(self) -> int:
        """Returns the end of the last range; 0: there is none."""
        return self._ranges[-1].to if self._ranges else 0

    def put(self, first: int, to: int, times: int) -> None:
        """Sets the count of first <= o < to, whatever it was. An empty range changes nothing."""
        if first >= to:
            return
        self.cut(first, to)
        at = bisect_left(self._ranges, first, key=_FIRST)
        begin, end = at, at
        if at and self._ranges[at - 1][1:] == (first, times):
            begin, first = at - 1, self._ranges[at - 1].first
        if at < len(self._ranges) and self._ranges[at].first == to and self._ranges[at].times == times:
            end, to = at + 1, self._ranges[at].to
        self._ranges[begin:end] = [Counted(first, to, times)]

    def cut(self, first: int, to: int) -> None:
        """Forgets the counts of first <= o < to."""
        begin, end = bisect_right(self._ranges, first, key=_TO), bisect_left(self._ranges, to, key=_FIRST)
        if begin >= end:
            return
        low, high = self._ranges[begin], self._ranges[end - 1]
        kept = [low._replace(to=first)] if low.first < first else []
        if high.to > to:
            kept.append(high._replace(first=to))
        self._ranges[begin:end] = kept

    def cut_below(self, offset: int) -> None:
        """Forgets everything below `offset`."""
        self.cut(0, offset)

    def keep_lowest(self, ranges_max: int) -> None:
        """Forgets the highest ranges, beyond so many."""
        del self._ranges[ranges_max:]

    def pieces(self, first: int, to: int) -> Iterator[Counted]:
        """Yields all of first <= o < to in ranges with one count each; 0 where nothing was counted."""
        position = first
        for at in range(bisect_right(self._ranges, first, key=_TO), len(self._ranges)):
            low, high, times = self._ranges[at]
            if low >= to:
                break
            if position < low:
                yield Counted(position, low, 0)
            position = min(high, to)
            yield Counted(max(low, first), position, times)
        if position < to:
            yield Counted(position, to, 0)
