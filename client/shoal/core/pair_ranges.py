"""Keeps ranges of offsets for pairs of a key and a handle. All pairs of a handle are forgotten in one step: a program
may detach thousands of queues one after the other, or hear that they were dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from shoal.core.offset_ranges import Ranges, joined, within, without

Pair = tuple[bytes, int]
"""A key and a handle: (key, handle)."""


class PairRanges:
    """Has ranges for some pairs, none of them empty."""

    __slots__ = ("_goes_on", "_of_handle", "_parts")

    def __init__(self) -> None:
        self._of_handle: dict[int, dict[bytes, Ranges]] = {}
        """No handle is without a key."""
        self._goes_on: dict[int, tuple[bytes, int]] = {}
        """Handle -> the key of which `take_turns` returned a part last, and the end of that part."""
        self._parts: dict[int, dict[bytes, int]] = {}
        """Handle and key -> of how many messages parts are; only of pairs that have ranges."""

    def __bool__(self) -> bool:
        return bool(self._of_handle)

    def get(self, pair: Pair) -> Ranges:
        """Returns the ranges of a pair."""
        of_handle = self._of_handle.get(pair[1])
        return of_handle.get(pair[0], ()) if of_handle else ()

    def among(self, key: bytes, handles: Iterable[int]) -> list[int]:
        """Returns those of the handles that have ranges of the key."""
        book = self._of_handle
        return [handle for handle in handles if handle in book and key in book[handle]] if book else []

    def set(self, pair: Pair, ranges: Ranges) -> None:
        """Replaces the ranges of a pair."""
        key, handle = pair
        if ranges:
            self._of_handle.setdefault(handle, {})[key] = ranges
        elif of_handle := self._of_handle.get(handle):
            of_handle.pop(key, None)
            if not of_handle:
                self._forget(handle)
            elif handle in self._parts:
                self._parts[handle].pop(key, None)

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
            self._forget(handle)

    def _forget(self, handle: int) -> None:
        for book in (self._of_handle, self._goes_on, self._parts):
            book.pop(handle, None)

    def of(self, handle: int) -> Iterator[Ranges]:
        """Yields the ranges of each key of a handle."""
        yield from self._of_handle.get(handle, {}).values()

    def items(self) -> Iterator[tuple[Pair, Ranges]]:
        """Yields each pair with its ranges; nothing may change meanwhile."""
        for handle, of_handle in self._of_handle.items():
            for key, ranges in of_handle.items():
                yield (key, handle), ranges

    def divide(self, pair: Pair, messages: int) -> None:
        """Has ranges of so many messages returned in parts of half as many from now on, until the pair has none."""
        if self.get(pair):
            parts = self._parts.setdefault(pair[1], {})
            parts[pair[0]] = max(1, min(parts.get(pair[0], messages), messages // 2))

    def in_parts(self) -> Iterator[tuple[Pair, Ranges]]:
        """Yields each pair with its ranges, in parts where they were divided."""
        for (key, handle), ranges in self.items():
            yield (key, handle), self._divided(key, handle, ranges, None)

    def _divided(self, key: bytes, handle: int, ranges: Ranges, most: int | None) -> Ranges:
        """Returns the first parts, at most so many. O(those)."""
        size = self._parts.get(handle, {}).get(key)
        if size is None:
            return ranges[:most]
        each = ((at, min(high, at + size)) for low, high in ranges for at in range(low, high, size))
        return tuple(islice(each, most))

    def take_turns(self, ranges_max: int) -> dict[Pair, Ranges]:
        """Returns so many ranges, by pair: those of the first handles, and of their first keys. What the next call
        returns is behind these: all have their turn, as do handles. Parts count where they were divided. O(those)."""
        found: dict[Pair, Ranges] = {}
        for handle in list(islice(self._of_handle, ranges_max)):
            if ranges_max <= 0:
                break
            ranges_max -= self._take_turn(handle, ranges_max, found)
            self._of_handle[handle] = self._of_handle.pop(handle)
        return found

    def _take_turn(self, handle: int, ranges_max: int, found: dict[Pair, Ranges]) -> int:
        """Returns how many ranges of a handle it put into `found`."""
        of_handle, passed, taken = self._of_handle[handle], list[bytes](), 0
        goes_on, offset = self._goes_on.pop(handle, (b"", 0))
        for key, ranges in of_handle.items():
            if taken >= ranges_max:
                break
            if key == goes_on:
                ranges = within(ranges, offset, ranges[-1][1])
            if ranges:
                found[key, handle] = some = self._divided(key, handle, ranges, ranges_max - taken)
                taken += len(some)
                if some[-1][1] < ranges[-1][1]:
                    self._goes_on[handle] = key, some[-1][1]
                    break
            passed.append(key)
        for key in passed:
            of_handle[key] = of_handle.pop(key)
        return taken

    def copy(self) -> PairRanges:
        """Returns another book with the same ranges."""
        other = PairRanges()
        other._of_handle = {handle: dict(of_handle) for handle, of_handle in self._of_handle.items()}
        return other
