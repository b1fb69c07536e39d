"""Merges and subtracts ranges of offsets: first <= offset < end, ascending and apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Returns the ranges in order, with those that touch or overlap merged into one."""
    result: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        elif first < end:
            result.append((first, end))
    return tuple(result)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """Returns the parts of `ranges` that are not in `others`."""
    result: list[tuple[int, int]] = []
    for first, end in ranges:
        for low, high in others:
            if high <= first or low >= end:
                continue
            if first < low:
                result.append((first, low))
            first = high
        if first < end:
            result.append((first, end))
    return tuple(result)


def total(ranges: Ranges) -> int:
    return sum(end - first for first, end in ranges)
