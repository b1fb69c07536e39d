"""Keeps ranges of offsets for pairs of a key and a handle. All pairs of a handle are forgotten in one step: a program
may detach thousands of queues one after the other, or hear that they were dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shoal.core.offset_ranges import Ranges, joined, without

Pair = tuple[bytes, int]
"""A key and a handle: (key, handle)."""


class PairRanges:
    """Has ranges for some pairs, none of them empty."""

    __slots__ = ("_of_handle",)

    def __init__(self) -> None:
        self._of_handle: dict[int, dict[bytes, Ranges]] = {}
        """No handle is without a key."""

    def __bool__(self) -> bool:
        return bool(self._of_handle)

    def get(self, pair: Pair) -> Ranges:
        """Returns the ranges of a pair."""
        of_handle = self._of_handle.get(pair[1])
        return of_handle.get(pair[0], ()) if of_handle else ()

    def set(self, pair: Pair, ranges: Ranges) -> None:
        """Replaces the ranges of a pair."""
        key, handle = pair
        if ranges:
            self._of_handle.setdefault(handle, {})[key] = ranges
        elif of_handle := self._of_handle.get(handle):
            of_handle.pop(key, None)
            if not of_handle:
                del self._of_handle[handle]

    def add(self, pair: Pair, ranges: Ranges) -> None:
        """Adds ranges to those of a pair."""
        if ranges:
            self.set(pair, joined(self.get(pair), ranges))

    def take(self, pair: Pair, ranges: Ranges) -> None:
        """Removes ranges from those of a pair."""
        if ranges and (before := self.get(pair)):
            self.set(pair, without(before, ranges))

    def pop(self, pair: Pair) -> Ranges:
        """Removes all ranges of a pair, and returns them."""
        if found := self.get(pair):
            self.set(pair, ())
        return found

    def forget(self, handles: Iterable[int]) -> None:
        """Removes all pairs of these handles. O(those)."""
        for handle in handles if self._of_handle else ():
            self._of_handle.pop(handle, None)

    def of(self, handle: int) -> Iterator[Ranges]:
        """Yields the ranges of each key of a handle."""
        yield from self._of_handle.get(handle, {}).values()

    def items(self) -> Iterator[tuple[Pair, Ranges]]:
        """Yields each pair with its ranges; nothing may change meanwhile."""
        for handle, of_handle in self._of_handle.items():
            for key, ranges in of_handle.items():
                yield (key, handle), ranges

    def copy(self) -> PairRanges:
        """Returns another book with the same ranges."""
        other = PairRanges()
        other._of_handle = {handle: dict(of_handle) for handle, of_handle in self._of_handle.items()}
        return other
