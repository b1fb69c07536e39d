"""Takes the census of an archive in Spark. Data per key or per queue stays in Spark; data per interval comes here.

Sizes of keys over time are kept as spans of intervals: (from, to, size), `to` exclusive. Spans with the same intervals
and size class are one row here: a few rows for each pair of intervals, however many keys there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import text
from shoal_pipeline.census.interval import Grid, make_grid
from shoal_pipeline.census.notes import notes_of
from shoal_pipeline.census.outcome import Census, HotKey, IntervalFigures, PlaceFigures
from shoal_pipeline.census.ownership import Owned, ownership_of
from shoal_pipeline.census.requests import MEMBERSHIP_KINDS, changes_in, frames_of, look_over, requests_of
from shoal_pipeline.census.skew import skews_of
from shoal_pipeline.census.stocks import Alike, Stocks
from shoal_pipeline.limits import HOTTEST
from shoal_pipeline.progress import Say

_ORDER = ("slice", "lsn", "step", "request", "queue")
_FLOWS = ("binds", "unbinds", "keys_begun", "keys_ended", "messages", "message_bytes")


@dataclass(frozen=True, slots=True)
class Counted:
    """Holds the data that figures come from. `memberships`: their changes, each with its interval and the key's size
    after it; `spans`: sizes of keys over intervals; `publishes`: accepted publishes, with their interval."""

    memberships: DataFrame
    queues: DataFrame
    spans: DataFrame
    publishes: DataFrame


def take_census(rows: DataFrame, archive: str, interval_ms: int | None, say: Say) -> Census:
    """Takes the census. `rows`: from `read_rows`; each segment is read once, and kept. `interval_ms` None: a length
    that fits.

    Raises NothingYet, BadCall, Corrupt.
    """
    rows = rows.persist()
    frames = frames_of(rows).persist()
    say("looking the archive over")
    overview = look_over(frames)
    grid = make_grid(overview.first_ms, overview.last_ms, interval_ms)
    ownership = ownership_of(rows)
    changes = changes_in(
        requests_of(rows, frames, overview, ownership, *MEMBERSHIP_KINDS), overview.incomplete
    ).withColumn("interval", _interval(grid))
    publishes = requests_of(rows, frames, overview, ownership, "publish")
    found = _counted_from(changes.persist(), publishes, grid)
    say(f"replaying joins and leaves, {grid.count} intervals of {grid.length_ms / 1000:,.10g} s")
    stocks = Stocks(grid.count, _alike(found.spans))
    intervals = _intervals(grid, stocks, _flows(found))
    fullest = max(range(grid.count), key=lambda number: (intervals[number].memberships, -number))
    say("finding the hottest keys and the skew")
    places = _places(found, ownership, fullest)
    census = Census(
        archive,
        grid.length_ms,
        overview.spans,
        tuple(intervals),
        fullest,
        tuple(stocks.sizes()),
        tuple(_hottest(found)),
        tuple(places),
        tuple(skews_of(places)),
        tuple(notes_of(overview, grid)),
    )
    for frame in (rows, frames, changes, found.memberships, found.publishes):
        frame.unpersist()
    return census


def _counted_from(changes: DataFrame, publishes: DataFrame, grid: Grid) -> Counted:
    running = Window.partitionBy("key").orderBy(*_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    memberships = changes.where("key is not null").withColumn("size", f.sum("delta").over(running)).persist()
    limit = f.lit(NAME_BYTES_MAX) + f.startswith("key", f.lit(b"@")).cast("int")
    sent = publishes.where(f.col("owned") & f.col("messages").isNotNull() & f.length("key").between(1, limit))
    sent = sent.select("slice", "partition", "key", "messages", "size", _interval(grid).alias("interval")).persist()
    return Counted(memberships, changes.where("key is null"), _spans(memberships, grid), sent)


def _interval(grid: Grid) -> Column:
    """Returns the interval of a row, like Grid.number_of."""
    number = f.floor((f.col("at_ms") - f.lit(grid.start_ms)) / f.lit(grid.length_ms)) - f.lit(grid.skipped)
    return f.least(f.greatest(number, f.lit(0)), f.lit(grid.count - 1)).cast("int")


def _spans(memberships: DataFrame, grid: Grid) -> DataFrame:
    """Returns key, partition, slice, size, from, to: the size at the end of each of these intervals. There is no row
    while the size is 0."""
    order = f.struct(*_ORDER)
    last = memberships.groupBy("key", "interval").agg(
        f.max_by("size", order).alias("size"),
        f.first("partition").alias("partition"),
        f.max_by("slice", order).alias("slice"),
    )
    following = f.lead("interval").over(Window.partitionBy("key").orderBy("interval"))
    spans = last.withColumn("to", f.coalesce(following, f.lit(grid.count))).withColumnRenamed("interval", "from")
    size_class = f.when(f.col("size") == 1, 0).otherwise(f.length(f.bin(f.col("size") - 1)))
    return spans.where("size > 0").withColumn("class", size_class)


def _alike(spans: DataFrame) -> list[Alike]:
    size = f.col("size").cast("double")
    found = spans.groupBy("from", "to", "class").agg(
        f.count("*").alias("keys"), f.sum("size").alias("members"), f.sum(size * size).alias("squares"), f.max("size")
    )
    return [Alike._make(row) for row in found.collect()]


def _flows(found: Counted) -> dict[int, dict[str, int]]:
    """Returns the sums of flows, by interval and by name."""
    joined, left = f.col("delta") > 0, f.col("delta") < 0
    memberships = found.memberships.select(
        "interval",
        joined.cast("int").alias("binds"),
        left.cast("int").alias("unbinds"),
        (joined & (f.col("size") == 1)).cast("int").alias("keys_begun"),
        (left & (f.col("size") == 0)).cast("int").alias("keys_ended"),
    )
    order = Window.partitionBy("queue").orderBy("at_ms", "slice", "lsn", "step", "request")
    slices = f.sum("delta").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    came, went = joined & (f.col("slices") == 1), left & (f.col("slices") == 0)
    online = found.queues.withColumn("slices", slices).select(
        "interval", (came.cast("int") - went.cast("int")).alias("online")
    )
    messages = found.publishes.select("interval", "messages", f.col("size").alias("message_bytes"))
    every = memberships.unionByName(online, True).unionByName(messages, True)
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in (*_FLOWS, "online")]
    return {row.interval: row.asDict() for row in every.groupBy("interval").agg(*sums).collect()}


def _intervals(grid: Grid, stocks: Stocks, flows: dict[int, dict[str, int]]) -> list[IntervalFigures]:
    online = 0
    found: list[IntervalFigures] = []
    for number in range(grid.count):
        flow = flows.get(number, {})
        online += flow.get("online", 0)
        found.append(
            IntervalFigures(
                start_ms=grid.begin_ms(number),
                seconds=grid.seconds(number),
                online_queues=online,
                keys=stocks.keys[number],
                memberships=stocks.memberships[number],
                size_mean=stocks.mean(number),
                size_stddev=stocks.stddev(number),
                size_max=stocks.largest[number],
                **{name: flow.get(name, 0) for name in _FLOWS},
            )
        )
    return found


def _hottest(found: Counted) -> list[HotKey]:
    members = found.memberships.select("key", f.struct(*_ORDER).alias("order"), f.col("size").alias("members"))
    messages = found.publishes.select("key", "messages", f.col("size").alias("message_bytes"))
    keys = (
        members.unionByName(messages, True)
        .groupBy("key")
        .agg(
            f.coalesce(f.max("members"), f.lit(0)).alias("members_max"),
            f.coalesce(f.max_by("members", "order"), f.lit(0)).alias("members"),
            f.count("members").alias("churn"),
            f.coalesce(f.sum("messages"), f.lit(0)).alias("messages"),
            f.coalesce(f.sum("message_bytes"), f.lit(0)).alias("message_bytes"),
        )
    )
    keys = keys.persist()
    hottest = [
        HotKey(by, rank, text(bytes(row.key)), row.members_max, row.members, row.churn, row.messages, row.message_bytes)
        for by, column in (("members", "members_max"), ("churn", "churn"), ("messages", "messages"))
        for rank, row in enumerate(_top(keys, column), 1)
    ]
    keys.unpersist()
    return hottest


def _top(keys: DataFrame, column: str) -> list[Row]:
    return keys.where(f.col(column) > 0).orderBy(f.desc(column), "key").limit(HOTTEST).collect()


def _places(found: Counted, ownership: list[Owned], fullest: int) -> list[PlaceFigures]:
    """Returns the figures of every partition that a slice owned last; none where the archive does not say how many
    there are."""
    full = found.spans.where((f.col("from") <= fullest) & (f.col("to") > fullest))
    stocks = full.select("slice", "partition", f.lit(1).alias("keys"), f.col("size").alias("memberships"))
    churn = found.memberships.select("slice", "partition", f.lit(1).alias("churn"))
    messages = found.publishes.select("slice", "partition", "messages")
    every = stocks.unionByName(churn, True).unionByName(messages, True)
    names = ("keys", "memberships", "churn", "messages")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in names]
    figures = {
        (row.slice, row.partition): PlaceFigures(*row)
        for row in every.groupBy("slice", "partition").agg(*sums).collect()
    }
    if any(partition is None for _, partition in figures):
        return []
    last = {one.slice: one for one in ownership}
    owned = [(one.slice, number) for one in last.values() for number in sorted(one.partitions)]
    return [figures.get(place) or PlaceFigures(*place, 0, 0, 0, 0) for place in owned]
