"""Computes with ranges of offsets, first <= offset < end: ascending tuples of ranges that do not touch.

The tuples are immutable and shared freely. One may have thousands of ranges, so places in it are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

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
    begin, stop = bisect_left(ranges, first, key=end_of), bisect_right(ranges, end, key=first_of)
    new: list[tuple[int, int]] = []
    start, position = first, first
    for low, high in ranges[begin:stop]:  # Those that touch it.
        if position < low:
            new.append((position, low))
        position = max(position, high)
        start = min(start, low)
    if position < end:
        new.append((position, end))
    if not new:
        return ranges, ()
    return (*ranges[:begin], (start, max(position, end)), *ranges[stop:]), tuple(new)


def without_range(ranges: Sequence[tuple[int, int]], first: int, end: int) -> Ranges:
    """Returns `ranges` without first <= offset < end."""
    if ranges == ((first, end),):
        return ()
    begin, stop = bisect_right(ranges, first, key=end_of), bisect_left(ranges, end, key=first_of)
    if begin >= stop:
        return tuple(ranges)
    low, high = ranges[begin][0], ranges[stop - 1][1]
    before = ((low, first),) if low < first else ()
    after = ((end, high),) if high > end else ()
    return (*ranges[:begin], *before, *after, *ranges[stop:])


def within(ranges: Sequence[tuple[int, int]], first: int, end: int) -> Ranges:
    """Returns the ranges of first <= offset < end that are in `ranges`."""
    begin, stop = bisect_right(ranges, first, key=end_of), bisect_left(ranges, end, key=first_of)
    return tuple((max(low, first), min(high, end)) for low, high in ranges[begin:stop])


def without(ranges: Sequence[tuple[int, int]], taken: Sequence[tuple[int, int]]) -> Ranges:
    """Returns `ranges` without those in `taken`, in one pass over both."""
    if len(taken) < 2:
        return without_range(ranges, *taken[0]) if taken else tuple(ranges)
    begin, stop = bisect_right(ranges, taken[0][0], key=end_of), bisect_left(ranges, taken[-1][1], key=first_of)
    left: list[tuple[int, int]] = []
    place = bisect_right(taken, ranges[begin][0], key=end_of) if begin < stop else 0
    for low, high in ranges[begin:stop]:
        while place < len(taken) and taken[place][0] < high:
            if low < taken[place][0]:
                left.append((low, taken[place][0]))
            low = max(low, taken[place][1])
            if low >= high:
                break  # It may reach into the next range.
            place += 1
        if low < high:
            left.append((low, high))
    return (*ranges[:begin], *left, *ranges[stop:])


def joined(ranges: Ranges, added: Ranges) -> Ranges:
    """Returns `ranges` with those in `added`, in one pass over both."""
    if not ranges or not added:
        return ranges or added
    return with_range(ranges, *added[0])[0] if len(added) == 1 else merged((*ranges, *added))


def merged(found: Iterable[tuple[int, int]]) -> Ranges:
    """Returns ranges that may be in any order, touch and overlap, as ascending ones that do not touch."""
    left: list[tuple[int, int]] = []
    for low, high in sorted(found):  # Takes one pass where they are a few runs in order.
        if left and low <= left[-1][1]:
            left[-1] = (left[-1][0], max(high, left[-1][1]))
        else:
            left.append((low, high))
    return tuple(left)


def both(ranges: Ranges, others: Ranges) -> Ranges:
    """Returns the ranges of what is in the two."""
    if not ranges or not others or ranges == others:
        return ranges if others else ()
    return without(ranges, without(ranges, others))


def outside(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns the ranges of first <= offset < end that are not in `ranges`."""
    return without(((first, end),), within(ranges, first, end))


def count(ranges: Sequence[tuple[int, int]]) -> int:
    """Returns how many offsets the ranges hold."""
    return sum(high - low for low, high in ranges)


def first_of(one: tuple[int, int]) -> int:
    """Returns the first offset of a range."""
    return one[0]


def end_of(one: tuple[int, int]) -> int:
    """Returns the offset behind the last one of a range."""
    return one[1]
