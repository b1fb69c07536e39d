"""Computes how unevenly figures are spread over partitions and slices. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shoal_pipeline.census.outcome import PlaceFigures, Skew

FIGURES = ("keys", "memberships", "churn", "messages")


def skews_of(places: Sequence[PlaceFigures]) -> list[Skew]:
    """Returns the skews. `places`: every partition, also those with nothing."""
    found: list[Skew] = []
    for figure in FIGURES:
        by_slice: Counter[str] = Counter()
        values = [int(getattr(place, figure)) for place in places]
        for place, value in zip(places, values, strict=True):
            by_slice[place.slice] += value
        found.append(skew_of("partition", figure, values))
        found.append(skew_of("slice", figure, list(by_slice.values())))
    return found


def skew_of(over: str, figure: str, values: Sequence[int]) -> Skew:
    count, total, top = len(values), sum(values), max(values, default=0)
    mean = total / count if count else 0.0
    return Skew(over, figure, count, mean, float(top), top / mean if mean else 0.0, gini(values))


def gini(values: Sequence[int]) -> float:
    """Returns Gini's coefficient: half the mean difference between two places, divided by their mean."""
    count, total = len(values), sum(values)
    if not total:
        return 0.0
    weighted = sum(rank * value for rank, value in enumerate(sorted(values), 1))
    return 2 * weighted / (count * total) - (count + 1) / count
