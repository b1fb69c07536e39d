"""Finds the parts of a key's log that a binding has not done, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.ranges import Ranges


class Undone(NamedTuple):
    """Names the offsets low <= o < to of a stored chunk."""

    low: int
    to: int
    stored: StoredChunk


def undone(rows: LogRows, low: int, end: int, done: Ranges | None) -> Iterator[Undone]:
    """Yields the parts of low <= o < end that are kept and not done. They come one at a time, as a backlog may have any
    size. Done messages are jumped over: only a few rows are read from one part to the next, however far that is. Must
    not be advanced in a later step.
    """
    position = _next_undone(done, low)
    while position < end:
        stored = rows.at(position)
        if stored is None:
            return
        position = max(position, stored.first)
        row_end = min(stored.end, end)
        while position < row_end:
            start, position = _next_stretch(done, position, row_end)
            if start < position:
                yield Undone(start, position, stored)
        position = _next_undone(done, position)


def _next_undone(done: Ranges | None, position: int) -> int:
    return done.end_of(position) if done else position


def _next_stretch(done: Ranges | None, position: int, end: int) -> tuple[int, int]:
    """Returns the next stretch from `position` on that is not done; an empty one at `end` if there is none."""
    if not done:
        return position, end
    start = done.end_of(position)
    if start >= end:
        return end, end
    following = done.next_from(start)
    return start, end if following is None else min(end, following)
