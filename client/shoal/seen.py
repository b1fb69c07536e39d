"""Which offsets of which keys an inbox has seen for which handles, so that repeats can be told from news. Pure.

Ranges, not a high mark: when messages of another session that ended come late, they are below what was seen, and new.
Bounded: SEEN_RANGES_MAX a pair, SEEN_ENTRIES_MAX pairs. What is forgotten would only be taken for news again.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.limits import SEEN_ENTRIES_MAX, SEEN_RANGES_MAX

Ranges = tuple[tuple[int, int], ...]
"""Ascending, apart from each other: first <= offset < end."""
Part = tuple[int, int, Sequence[int]]
"""first, end, handles."""


class Seen:
    """Ranges for each key and handle. Handles with equal ranges share one tuple."""

    def __init__(self, entries_max: int = SEEN_ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._keys: dict[bytes, dict[int, Ranges]] = {}
        """Key -> handle -> ranges; the key used last is last. `_entries` is the number of handles in all."""

    def add(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> list[Part]:
        """Sees these. Returns what of it is new; usually all of it."""
        marks = self._keys.pop(key, None)
        if marks is None:
            marks = {}
        self._keys[key] = marks
        before = len(marks)
        parts = self._mark(marks, first, end, handles)
        self._entries += len(marks) - before
        while self._entries > self._entries_max and len(self._keys) > 1:
            self._entries -= len(self._keys.pop(next(iter(self._keys))))
        return parts

    def known(self, key: bytes, first: int, end: int, handle: int) -> list[tuple[int, int]]:
        """What of first <= offset < end was seen for this handle."""
        ranges = self._keys.get(key, {}).get(handle, ())
        return [(max(low, first), min(high, end)) for low, high in ranges if low < end and first < high]

    def _mark(self, marks: dict[int, Ranges], first: int, end: int, handles: Sequence[int]) -> list[Part]:
        before = set(map(marks.get, handles))
        if len(before) == 1:  # The usual case: one step for all handles.
            ranges, new = _insert(before.pop() or (), first, end)
            marks.update(dict.fromkeys(handles, ranges))
            return [(low, high, handles) for low, high in new]
        inserted = {old: _insert(old or (), first, end) for old in before}
        groups: dict[Ranges, list[int]] = {}
        for handle in handles:
            marks[handle], new = inserted[marks.get(handle)]
            groups.setdefault(new, []).append(handle)
        return [(low, high, same) for new, same in groups.items() for low, high in new]


def _insert(ranges: Ranges, first: int, end: int) -> tuple[Ranges, Ranges]:
    """`ranges` with first <= offset < end, and what of that is new."""
    if not ranges:
        return ((first, end),), ((first, end),)
    low, high = ranges[-1]
    if high == first:
        return (*ranges[:-1], (low, end)), ((first, end),)
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
    return tuple(sorted(kept)[-SEEN_RANGES_MAX:]), tuple(new)
