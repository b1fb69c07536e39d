"""Prepares the archive's rows for a census: without repeated frames, and each with whether its slice owned the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from shoal_pipeline.archive.folder import NothingYet
from shoal_pipeline.archive.schema import SCHEMA
from shoal_pipeline.census.memberships import Change, Request, changes_of
from shoal_pipeline.census.outcome import SliceSpan
from shoal_pipeline.census.ownership import Owned, with_owned
from shoal_pipeline.limits import ARROW_ROWS

MEMBERSHIP_KINDS = ("declare", "bind", "unbind", "import", "drop", "expire")
_READ = (*MEMBERSHIP_KINDS, "publish", "own", "damaged")
"""Kinds that a census needs. Rows of all others are left out: acks and trims are most of an archive."""
CHANGES = StructType(
    [
        StructField("at_ms", LongType()),
        StructField("slice", StringType()),
        StructField("lsn", LongType()),
        StructField("step", IntegerType()),
        StructField("request", IntegerType()),
        StructField("queue", BinaryType()),
        StructField("key", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("delta", IntegerType()),
    ]
)
_NAMES = ("key", "queue")
_COLUMNS = (
    *("time", "lsn", "slice", "kind", "key", "queue", "partition", "offset", "messages", "size", "step", "request"),
    *("producer", "sequence"),
)


def read_rows(session: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    """Returns every row that a census needs, in the census's columns. Names are bytes, as different names may be shown
    alike. The data source leaves out all rows but those of _READ. `options`: those of the data source."""
    fields = [SCHEMA[name] for name in _COLUMNS]
    schema = StructType([StructField(field.name, BinaryType()) if field.name in _NAMES else field for field in fields])
    rows = session.read.format("shoal").options(**options).schema(schema).load(path)
    rows = rows.where(f.col("kind").isin(*_READ))
    return rows.withColumn("at_ms", f.unix_millis("time")).drop("time")


@dataclass(frozen=True, slots=True)
class Overview:
    """Says what the whole archive holds. `spans`: what the archive has of each slice. `partitions`: the cluster's; 0:
    unknown. `ownerless`: slices that do not say what they own. `records_lost`: in the `damaged` places that were
    skipped, as far as known."""

    spans: tuple[SliceSpan, ...]
    partitions: int
    ownerless: frozenset[str]
    damaged: int
    records_lost: int
    repeats: int

    @property
    def first_ms(self) -> int:
        return min(one.first_ms for one in self.spans)

    @property
    def last_ms(self) -> int:
        return max(one.last_ms for one in self.spans)

    @property
    def incomplete(self) -> frozenset[str]:
        return frozenset(one.slice for one in self.spans if one.first_lsn > 1)


def frames_of(rows: DataFrame) -> DataFrame:
    """Returns one row for each record, with `repeat`: whether the slice had that producer's frame already and changed
    nothing."""
    frames = rows.groupBy("slice", "lsn").agg(
        f.min(f.when(f.col("kind") != "damaged", f.col("at_ms"))).alias("at_ms"),
        f.first("producer").alias("producer"),
        f.first("sequence").alias("sequence"),
        f.max(f.when(f.col("kind") == "own", f.col("messages"))).alias("partitions"),
        f.sum(f.when(f.col("kind") == "damaged", f.col("messages"))).alias("lost"),
        f.count(f.when(f.col("kind") == "damaged", f.lit(1))).alias("damaged"),
    )
    before = Window.partitionBy("slice", "producer").orderBy("lsn").rowsBetween(Window.unboundedPreceding, -1)
    highest = f.max("sequence").over(before)
    return frames.withColumn("repeat", f.col("producer").isNotNull() & (f.col("sequence") <= highest))


def look_over(frames: DataFrame) -> Overview:
    """Returns the overview of an archive. Raises NothingYet for an archive without records."""
    found = (
        frames.groupBy("slice")
        .agg(
            f.min("at_ms").alias("first_ms"),
            f.max("at_ms").alias("last_ms"),
            f.min("lsn").alias("first_lsn"),
            f.max("partitions").alias("partitions"),
            f.sum("lost").alias("lost"),
            f.sum("damaged").alias("damaged"),
            f.sum(f.col("repeat").cast("int")).alias("repeats"),
        )
        .collect()
    )
    known = [row for row in found if row.first_ms is not None]
    if not known:
        raise NothingYet
    spans = (SliceSpan(row.slice, row.first_ms, row.last_ms, row.first_lsn) for row in known)
    return Overview(
        tuple(sorted(spans, key=attrgetter("slice"))),
        max(row.partitions or 0 for row in found),
        frozenset(row.slice for row in found if row.partitions is None),
        sum(row.damaged or 0 for row in found),
        sum(row.lost or 0 for row in found),
        sum(row.repeats or 0 for row in found),
    )


def requests_of(
    rows: DataFrame, frames: DataFrame, overview: Overview, ownership: Sequence[Owned], *kinds: str
) -> DataFrame:
    """Returns the requests of some kinds, each once, with `owned`: whether the slice owned the key's partition then, or
    does not say what it owns."""
    found = rows.where(f.col("kind").isin(*kinds)).drop("producer", "sequence")
    if overview.repeats:
        repeats = frames.where("repeat").select("slice", "lsn")
        found = found.join(f.broadcast(repeats), ["slice", "lsn"], "left_anti")
    return with_owned(found, ownership, overview.incomplete, overview.ownerless)


def changes_in(requests: DataFrame, incomplete: frozenset[str]) -> DataFrame:
    """Passes each queue's requests, in order, through `changes_of`, with one queue's memberships in memory at a
    time."""
    order = [name for name in Request._fields if name in ("queue", "slice", "lsn", "step", "request")]
    sorted_requests = requests.select(*Request._fields).repartition("queue").sortWithinPartitions(*order)
    return sorted_requests.mapInArrow(partial(_changed, incomplete=incomplete), CHANGES)


def _changed(batches: Iterator[pa.RecordBatch], incomplete: frozenset[str]) -> Iterator[pa.RecordBatch]:
    schema = pa.schema(
        [
            ("at_ms", pa.int64()),
            ("slice", pa.string()),
            ("lsn", pa.int64()),
            ("step", pa.int32()),
            ("request", pa.int32()),
            ("queue", pa.binary()),
            ("key", pa.binary()),
            ("partition", pa.int32()),
            ("delta", pa.int32()),
        ]
    )
    requests = (
        Request._make(row)
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    held: list[Change] = []
    for change in changes_of(requests, incomplete):
        held.append(change)
        if len(held) >= ARROW_ROWS:
            yield _batch(held, schema)
            held = []
    if held:
        yield _batch(held, schema)


def _batch(changes: list[Change], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*changes, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
