"""Computes with ranges of offsets, first <= offset < end: ascending tuples of ranges that do not touch.

The tuples are immutable and shared freely.
"""

from __future__ import annotations

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
    new: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []
    start, stop, position = first, end, first
    for low, high in ranges:
        if high < first or low > end:
            kept.append((low, high))
            continue
        if position < low:
            new.append((position, min(low, end)))
        position = max(position, high)
        start, stop = min(start, low), max(stop, high)
    if position < end:
        new.append((position, end))
    kept.append((start, stop))
    return tuple(sorted(kept)), tuple(new)


def without_range(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns `ranges` without first <= offset < end."""
    if ranges == ((first, end),):
        return ()
    left: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < first:
            left.append((low, min(high, first)))
        if high > end:
            left.append((max(low, end), high))
    return tuple(left)


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """Returns the ranges of first <= offset < end that are in `ranges`."""
    return tuple((max(low, first), min(high, end)) for low, high in ranges if low < end and first < high)


def count(ranges: Ranges) -> int:
    """Returns how many offsets the ranges hold."""
    return sum(high - low for low, high in ranges)
