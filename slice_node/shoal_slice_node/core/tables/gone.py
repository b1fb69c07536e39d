"""Remembers where a delta has deleted many rows that follow each other, and the base still has them until the next
checkpoint: a scan need not pass them again.

What is done to a queue in many small steps, from its first row on, passed all that the steps before had deleted each
time: work that grew with the square.
"""

from __future__ import annotations

from bisect import bisect_right


class Gone:
    """Keeps runs of keys without a row: from a first key on, up to an end. Their number is bounded by what the delta
    has: a run is noted over GONE_RUN_MIN deleted rows or more, and a row that comes into one makes two of it. A bound
    of its own would not do: where there is one run more, each scan passes all of them again."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[bytes] = []
        """Ascending."""
        self._ends: dict[bytes, bytes] = {}
        """The end of each run, by its start."""

    def __len__(self) -> int:
        return len(self._starts)

    def past(self, key: bytes) -> bytes:
        """Returns the key itself, or the end of the run that it lies in."""
        place = bisect_right(self._starts, key)
        if not place:
            return key
        return max(key, self._ends[self._starts[place - 1]])

    def note(self, start: bytes, end: bytes) -> None:
        """Notes that no row has a key with start <= key < end. Runs that touch become one."""
        starts, ends = self._starts, self._ends
        place = bisect_right(starts, start)
        if place and start <= ends[starts[place - 1]]:
            place -= 1
            start = starts[place]
        while place < len(starts) and starts[place] <= end:
            end = max(end, ends.pop(starts.pop(place)))
        starts.insert(place, start)
        ends[start] = end

    def came(self, key: bytes) -> None:
        """Notes that a row came: the run that its key lies in ends before it, and another begins behind it."""
        place = bisect_right(self._starts, key)
        if not place:
            return
        start = self._starts[place - 1]
        end = self._ends[start]
        if key >= end:
            return
        if key == start:
            del self._starts[place - 1], self._ends[start]
        else:
            self._ends[start] = key
        if (behind := key + b"\0") < end:
            self.note(behind, end)
