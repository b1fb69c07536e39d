"""Intervals of a census: how long, which, and how much of each the archive covers. Pure; times in ms since 1970."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shoal_contract.errors import BadCall
from shoal_pipeline.limits import INTERVALS_AIM, INTERVALS_MAX

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_CHOICES = ("1s", "5s", "10s", "30s", "1m", "5m", "10m", "30m", "1h", "3h", "6h", "12h", "1d", "7d", "30d", "365d")


def parse_interval(text: str) -> int:
    """ms of `90s`, `10m`, `1h`, `7d`. Raises BadCall."""
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None or not int(match[1]):
        raise BadCall(f"interval is {text!r}; it needs a number and s, m, h or d, as 10m", subject="interval")
    return int(match[1]) * _UNITS_MS[match[2]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Interval i is start_ms + i * length_ms <= t < start_ms + (i + 1) * length_ms; they begin at multiples of their
    length, in UTC. `first_ms`, `last_ms`: of the archive's records."""

    first_ms: int
    last_ms: int
    length_ms: int

    @property
    def start_ms(self) -> int:
        return self.first_ms // self.length_ms * self.length_ms

    @property
    def count(self) -> int:
        return (self.last_ms - self.start_ms) // self.length_ms + 1

    def seconds(self, number: int) -> float:
        """Of the interval, as far as the archive covers it; at least a millisecond."""
        begin = max(self.first_ms, self.start_ms + number * self.length_ms)
        end = min(self.last_ms, self.start_ms + (number + 1) * self.length_ms)
        return max(1, end - begin) / 1000


def make_grid(first_ms: int, last_ms: int, length_ms: int | None) -> Grid:
    """`length_ms` None: one that makes about INTERVALS_AIM of them. Raises BadCall for too many."""
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
