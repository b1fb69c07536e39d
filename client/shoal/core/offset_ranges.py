"""Computes with ranges of offsets, first <= offset < end: ascending tuples of ranges that do not touch.

The tuples are immutable and shared freely. One may have thousands of ranges, so places in it are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

Ranges = tuple[tuple[int, int], ...]


def with_range(ranges: Ranges, first: int, end: int) -> tuple[Ranges, Ranges]:
    """Returns `ranges` with first <= offset < end added, and the ranges that were new."""
    if not ranges:
        return ((first, end),), ((first, end),)
    low, high = ranges[-1]
    if high == first:
        return (*ranges[:-1], (low, end)), ((first, end),)
    if high < first:
        return (*ranges, (first, end)), ((first, end),)
    return _merged(ranges, first, end)


def _merged(ranges: Ranges, first: int, end: int) -> tuple[Ranges, Ranges]:
    begin, stop = bisect_left(ranges, first, key=_end), bisect_right(ranges, end, key=_first)
    new: list[tuple[int, int]] = []
    start, position = first, first
    for low, high in ranges[begin:stop]:  # Those that touch it.
        if position < low:
            new.append((position, low))
        position = max(position, high)
        start = min(start, low)
    if position < end:
        new.append((position, end))
    return (*ranges[:begin], (start, max(position, end)), *ranges[stop:]), tuple(new)


def without_range(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns `ranges` without first <= offset < end."""
    if ranges == ((first, end),):
        return ()
    begin, stop = bisect_right(ranges, first, key=_end), bisect_left(ranges, end, key=_first)
    if begin >= stop:
        return ranges
    low, high = ranges[begin][0], ranges[stop - 1][1]
    before = ((low, first),) if low < first else ()
    after = ((end, high),) if high > end else ()
    return (*ranges[:begin], *before, *after, *ranges[stop:])


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns the ranges of first <= offset < end that are in `ranges`."""
    begin, stop = bisect_right(ranges, first, key=_end), bisect_left(ranges, end, key=_first)
    return tuple((max(low, first), min(high, end)) for low, high in ranges[begin:stop])


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """Returns `ranges` without those in `taken`."""
    for low, high in taken:
        ranges = without_range(ranges, low, high)
    return ranges


def outside(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns the ranges of first <= offset < end that are not in `ranges`."""
    return without(((first, end),), within(ranges, first, end))


def count(ranges: Ranges) -> int:
    """Returns how many offsets the ranges hold."""
    return sum(high - low for low, high in ranges)


def _first(one: tuple[int, int]) -> int:
    return one[0]


def _end(one: tuple[int, int]) -> int:
    return one[1]
