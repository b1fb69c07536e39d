"""Writes a census as Parquet: one folder for each table, with one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession, functions

from shoal_pipeline.census.outcome import Census, IntervalFigures

_TABLES = {
    "intervals": (
        "start timestamp, seconds double, online_queues long, keys long, memberships long, groups_per_resident double,"
        " size_mean double, size_stddev double, size_max long, binds long, unbinds long, membership_churn_per_s double,"
        " keys_begun long, keys_ended long, key_churn_per_s double, messages long, message_bytes long,"
        " messages_per_s double"
    ),
    "sizes": "start timestamp, size_from long, size_to long, keys long",
    "hottest": (
        "by string, rank int, key string, members_max long, members long, churn long, messages long, message_bytes long"
    ),
    "places": "slice string, partition int, keys long, memberships long, churn long, messages long",
    "slices": "slice string, first timestamp, last timestamp, first_lsn long",
    "skew": "over string, figure string, places int, mean double, max double, max_by_mean double, gini double",
}


def rows_of(census: Census) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of each table, in the columns of its schema; timestamps in ms."""
    starts = [figures.start_ms for figures in census.intervals]
    return {
        "intervals": [_interval(figures) for figures in census.intervals],
        "sizes": [asdict(size) | {"start": starts[size.number]} for size in census.sizes],
        "hottest": [asdict(key) for key in census.hottest],
        "places": [asdict(place) for place in census.places],
        "slices": [asdict(one) | {"first": one.first_ms, "last": one.last_ms} for one in census.slices],
        "skew": [asdict(skew) for skew in census.skews],
    }


def _interval(figures: IntervalFigures) -> dict[str, Any]:
    rates = ("groups_per_resident", "membership_churn_per_s", "key_churn_per_s", "messages_per_s")
    return asdict(figures) | {"start": figures.start_ms} | {name: getattr(figures, name) for name in rates}


def write_tables(session: SparkSession, census: Census, folder: str) -> None:
    """Writes every table into a folder of its own below `folder`, which is new."""
    for table, rows in rows_of(census).items():
        columns = [column.split() for column in _TABLES[table].split(",")]
        names = [name for name, _ in columns]
        plain = ", ".join(f"{name} {kind.replace('timestamp', 'long')}" for name, kind in columns)
        frame = session.createDataFrame(_tuples(rows, names), plain)
        times = [name for name, kind in columns if kind == "timestamp"]
        frame = frame.withColumns({name: functions.timestamp_millis(name) for name in times}) if times else frame
        frame.coalesce(1).write.parquet(f"{folder}/{table}")


def _tuples(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]
