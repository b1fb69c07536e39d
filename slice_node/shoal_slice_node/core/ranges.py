"""Keeps sorted disjoint half-open ranges of offsets: done ranges. A binding has few, so a list beats a tree."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence


class Ranges:
    """Keeps ranges. Invariant: _from[i] < _to[i] < _from[i + 1] (touching ranges are one)."""

    __slots__ = ("_from", "_to")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._from: list[int] = []
        self._to: list[int] = []
        for first, to in pairs:
            self.add(first, to)

    @classmethod
    def of_sorted(cls, flat: Sequence[int]) -> Ranges:
        """Makes ranges from what `flat` returned, without a look at each pair."""
        ranges = cls()
        ranges._from, ranges._to = list(flat[::2]), list(flat[1::2])
        return ranges

    def flat(self) -> list[int]:
        """Returns from, to, from, to, ... ascending."""
        flat = [0] * (2 * len(self._from))
        flat[::2], flat[1::2] = self._from, self._to
        return flat

    def __len__(self) -> int:
        return len(self._from)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._from == other._from and self._to == other._to

    def __repr__(self) -> str:
        return f"Ranges({self.pairs()})"

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self._from, self._to, strict=True))

    def offsets(self) -> int:
        """Returns how many offsets the ranges hold."""
        return sum(self._to) - sum(self._from)

    def add(self, first: int, to: int) -> None:
        """Adds a range. An empty range changes nothing."""
        if first >= to:
            return
        left = bisect_left(self._to, first)
        right = bisect_right(self._from, to)
        if left < right:
            first, to = min(first, self._from[left]), max(to, self._to[right - 1])
        self._from[left:right] = [first]
        self._to[left:right] = [to]

    def end_of(self, offset: int) -> int:
        """Returns the end of the range that holds `offset`, else `offset`: the first offset from there in no range."""
        index = bisect_right(self._from, offset) - 1
        return self._to[index] if index >= 0 and offset < self._to[index] else offset

    def within(self, first: int, to: int) -> list[tuple[int, int]]:
        """Returns the parts of first <= offset < to that are in a range."""
        if first >= to:
            return []
        begin, end = bisect_right(self._to, first), bisect_left(self._from, to)
        return [(max(first, self._from[i]), min(to, self._to[i])) for i in range(begin, end)]

    def walk(self, first: int, to: int) -> Iterator[tuple[int, int]]:
        """Yields what `within` returns, one part at a time. The ranges must not change meanwhile."""
        if first < to:
            for i in range(bisect_right(self._to, first), bisect_left(self._from, to)):
                yield max(first, self._from[i]), min(to, self._to[i])

    def count_within(self, first: int, to: int) -> int:
        """Returns how many ranges have some of first <= offset < to."""
        return bisect_left(self._from, to) - bisect_right(self._to, first) if first < to else 0

    def begin_behind(self, offset: int, count: int) -> int | None:
        """Returns where the range begins that is behind the next `count` that end above `offset`; None: there is
        none."""
        index = bisect_right(self._to, offset) + count
        return self._from[index] if index < len(self._from) else None

    def gaps(self, first: int, to: int) -> list[tuple[int, int]]:
        """Returns the parts of first <= offset < to that are in no range."""
        found: list[tuple[int, int]] = []
        for low, high in self.within(first, to):
            if first < low:
                found.append((first, low))
            first = high
        if first < to:
            found.append((first, to))
        return found

    def next_from(self, offset: int) -> int | None:
        """Returns where the first range that begins at or above `offset` begins; None: there is none."""
        index = bisect_left(self._from, offset)
        return self._from[index] if index < len(self._from) else None

    def cut_above(self, offset: int) -> list[tuple[int, int]]:
        """Forgets everything from `offset` on. Returns what was forgotten."""
        index = bisect_right(self._to, offset)
        gone = list(zip(self._from[index:], self._to[index:], strict=True))
        del self._from[index:], self._to[index:]
        if gone and gone[0][0] < offset:
            self._from.append(gone[0][0])
            self._to.append(offset)
            gone[0] = (offset, gone[0][1])
        return gone

    def above(self, offset: int) -> Ranges:
        """Returns a copy without what is below `offset`."""
        ranges = Ranges.of_sorted(self.flat())
        ranges.cut_below(offset)
        return ranges

    def cut_below(self, offset: int) -> None:
        """Forgets everything below `offset`."""
        count = bisect_right(self._to, offset)
        del self._from[:count], self._to[:count]
        if self._from and self._from[0] < offset:
            self._from[0] = offset
