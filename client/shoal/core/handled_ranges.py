"""Adds what came to the ranges of handles that do not move in step.

Not here: what is remembered, for how long, and the usual case of handles with the same ranges (repeats.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.offset_ranges import Ranges, with_range
from shoal.limits import SEEN_RANGES_EACH

HandledRange = tuple[int, int, Sequence[int]]
"""A range, first <= offset < end, for these handles: (first, end, handles)."""


def deliver_apart(
    marks: dict[int, Ranges], first: int, end: int, handles: Sequence[int]
) -> tuple[bool, list[HandledRange], int]:
    """Adds a range to those of each handle, in `marks`. Returns whether all is new, what is new, and how many
    ranges the handle with most has now."""
    inserted: dict[Ranges | int, tuple[Ranges, Ranges, Ranges]] = {}
    """Maps ranges to what they were, are now, and what is new. Long ones go by identity: a hash takes as long as they
    are."""
    groups: dict[Ranges, list[int]] = {}
    for handle in handles:
        ranges = marks.get(handle, ())
        name = ranges if len(ranges) <= SEEN_RANGES_EACH else id(ranges)
        step = inserted.get(name)
        if step is None:
            step = inserted[name] = (ranges, *with_range(ranges, first, end))
        _, marks[handle], new = step
        groups.setdefault(new, []).append(handle)
    news: list[HandledRange] = [(low, high, same) for new, same in groups.items() for low, high in new]
    return set(groups) == {((first, end),)}, news, max(len(after) for _, after, _ in inserted.values())
