"""Computes the intervals of a census: their length, their number, and how much of each the archive covers. Pure; times
in ms since 1970.

An archive begins and ends in the middle of an interval. If it covers only a moment of that interval, the rate over this
moment may be the highest of all. So if less than half of the first or last interval is covered, it is counted into its
neighbour, which is longer by that much.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shoal_contract.errors import BadCall
from shoal_pipeline.limits import INTERVALS_AIM, INTERVALS_MAX

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CHOICES = ("1s", "5s", "10s", "30s", "1m", "5m", "10m", "30m", "1h", "3h", "6h", "12h", "1d", "7d", "30d", "365d")


def parse_interval(text: str) -> int:
    """Returns the ms of `90s`, `10m`, `1h`, `7d`. Raises BadCall."""
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None or not int(match[1]):
        raise BadCall(f"interval is {text!r}; it needs a number and s, m, h or d, as 10m", subject="interval")
    return int(match[1]) * _UNITS_MS[match[2]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Lays out the intervals from 0 to count - 1, one after the other. Each begins at a multiple of `length_ms`, in
    UTC, and is that long; the first and the last may be up to half as long again. `first_ms`, `last_ms`: times of the
    archive's records."""

    first_ms: int
    last_ms: int
    length_ms: int

    @property
    def start_ms(self) -> int:
        """Returns the begin of the first interval."""
        return self.first_ms // self.length_ms * self.length_ms

    @property
    def skipped(self) -> int:
        """Returns 1 if the first multiple after `start_ms` begins no interval, since little is covered before it; else
        0."""
        covered = self.start_ms + self.length_ms - self.first_ms
        return int(self._multiples > 1 and 2 * covered < self.length_ms)

    @property
    def count(self) -> int:
        """Returns how many intervals there are; at least one."""
        covered = self.last_ms - (self.start_ms + (self._multiples - 1) * self.length_ms)
        short_tail = int(self._multiples > 1 and 2 * covered < self.length_ms)
        return max(1, self._multiples - self.skipped - short_tail)

    def number_of(self, at_ms: int) -> int:
        """Returns the interval that a time counts into. A time before the first record or after the last, due to
        another clock's error, counts into the first or last interval."""
        return min(max((at_ms - self.start_ms) // self.length_ms - self.skipped, 0), self.count - 1)

    def begin_ms(self, number: int) -> int:
        return self.start_ms + (number + self.skipped if number else 0) * self.length_ms

    def seconds(self, number: int) -> float:
        """Returns how many seconds of the interval the archive covers. Where there is only one interval, this is at
        least a second: events of a moment are no rate."""
        begin = max(self.first_ms, self.begin_ms(number))
        end = self.last_ms if number == self.count - 1 else self.begin_ms(number + 1)
        return (max(1_000, end - begin) if self.count == 1 else end - begin) / 1000

    @property
    def _multiples(self) -> int:
        return (self.last_ms - self.start_ms) // self.length_ms + 1


def make_grid(first_ms: int, last_ms: int, length_ms: int | None) -> Grid:
    """Returns the intervals. `length_ms` None: a length with which there are about INTERVALS_AIM. Raises BadCall for
    too many."""
    if length_ms is None:
        lengths = [parse_interval(choice) for choice in _CHOICES]
        length_ms = next((one for one in lengths if (last_ms - first_ms) // one < INTERVALS_AIM), lengths[-1])
    grid = Grid(first_ms, last_ms, length_ms)
    if grid.count > INTERVALS_MAX:
        raise BadCall(
            f"{grid.count} intervals; the limit is {INTERVALS_MAX}: choose a longer one",
            subject="interval",
            limit=INTERVALS_MAX,
            value=grid.count,
        )
    return grid
