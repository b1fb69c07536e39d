"""Makes the load table of a census: each figure in the fullest interval, its mean over time, its highest value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shoal_pipeline.census.outcome import Census, IntervalFigures


@dataclass(frozen=True, slots=True)
class LoadRow:
    """Holds one row of the table, as it is shown."""

    name: str
    fullest: str
    mean: str
    highest: str


_ROWS: tuple[tuple[str, str, Callable[[IntervalFigures], float]], ...] = (
    ("online queues", ",.0f", lambda figures: figures.online_queues),
    ("keys in use", ",.0f", lambda figures: figures.keys),
    ("memberships", ",.0f", lambda figures: figures.memberships),
    ("groups per resident, average", ",.1f", lambda figures: figures.groups_per_resident),
    ("group size, average", ",.1f", lambda figures: figures.size_mean),
    ("group size, deviation", ",.1f", lambda figures: figures.size_stddev),
    ("group size, largest at an interval's end", ",.0f", lambda figures: figures.size_max),
    ("group churn / s", ",.4g", lambda figures: figures.key_churn_per_s),
    ("membership churn / s", ",.4g", lambda figures: figures.membership_churn_per_s),
    ("messages / s", ",.4g", lambda figures: figures.messages_per_s),
)


def load_table(census: Census) -> list[LoadRow]:
    """Returns the rows. Means are weighted by how much of each interval the archive covers."""
    seconds = sum(figures.seconds for figures in census.intervals)
    rows: list[LoadRow] = []
    for name, form, figure in _ROWS:
        values = [figure(figures) for figures in census.intervals]
        mean = sum(value * one.seconds for value, one in zip(values, census.intervals, strict=True)) / seconds
        shown = [format(value, form) for value in (values[census.fullest], mean, max(values))]
        rows.append(LoadRow(name, *shown))
    return rows
