"""Keeps what a run measured: latencies as histograms, and points over time for the plots. Pure."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log

from shoal_loadtest.residents.limits import HISTOGRAM_CLASSES, HISTOGRAM_MS_MIN, HISTOGRAM_STEP

_LOG_STEP = log(HISTOGRAM_STEP)


class Histogram:
    """Counts latencies in ms, in classes that grow by HISTOGRAM_STEP."""

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * HISTOGRAM_CLASSES))
        self.count = 0
        self.longest_ms = 0.0

    def add(self, values_ms: Iterable[float]) -> None:
        for value in values_ms:
            index = int(log(max(value, HISTOGRAM_MS_MIN) / HISTOGRAM_MS_MIN) / _LOG_STEP)
            self._counts[min(index, HISTOGRAM_CLASSES - 1)] += 1
            self.count += 1
            self.longest_ms = max(self.longest_ms, value)

    def percentile_ms(self, percent: float) -> float:
        """Returns the upper end of the class of that rank; 0 if nothing was added."""
        left = self.count * percent / 100
        for index, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return min(self.longest_ms, HISTOGRAM_MS_MIN * HISTOGRAM_STEP ** (index + 1))
        return 0.0


@dataclass(frozen=True, slots=True)
class Point:
    """Is one point of a plot. `at_s`: seconds since measuring began."""

    at_s: float
    value: float


@dataclass
class Figures:
    """Collects the figures of a run while measuring. `counts`: what happened since measuring began, by name."""

    latencies: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    counts: Counter[str] = field(default_factory=Counter)
    lines: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    _second: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    _counted: Counter[str] = field(default_factory=Counter)
    _point_s: float = 0.0

    def measured(self, samples: Mapping[str, list[float]], counts: Mapping[str, int]) -> None:
        """Adds what one generator reports since its last report."""
        for name, values_ms in samples.items():
            self.latencies[name].add(values_ms)
            self._second[name].add(values_ms)
        self.counts.update(counts)

    def point(self, at_s: float, values: Mapping[str, float]) -> None:
        """Adds one point to every line: `values` as they are, counts as rates, latencies as percentiles."""
        width_s = at_s - self._point_s
        if width_s <= 0:
            return
        for name, count in self.counts.items():
            self.lines[f"{name}/s"].append(Point(at_s, (count - self._counted[name]) / width_s))
        for name, histogram in self._second.items():
            for percent in (50, 99):
                self.lines[f"{name} p{percent}"].append(Point(at_s, histogram.percentile_ms(percent)))
        for name, value in values.items():
            self.lines[name].append(Point(at_s, value))
        self._second.clear()
        self._counted = Counter(self.counts)
        self._point_s = at_s


def thinned(points: list[Point], points_max: int) -> list[Point]:
    """Returns at most `points_max` points: the highest of each group of neighbours, so that peaks stay."""
    if len(points) <= points_max:
        return points
    step = -(-len(points) // points_max)
    groups = (points[start : start + step] for start in range(0, len(points), step))
    return [max(group, key=lambda point: point.value) for group in groups]
