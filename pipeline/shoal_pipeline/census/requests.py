"""The archive's rows as a census needs them: without repeated frames, and each with whether its slice owned the key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from shoal_contract.errors import BadCall
from shoal_pipeline.archive.schema import SCHEMA
from shoal_pipeline.census.memberships import Change, Request, changes_of
from shoal_pipeline.limits import ARROW_ROWS

MEMBERSHIP_KINDS = ("declare", "bind", "unbind", "import", "drop")
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
    *("time", "lsn", "slice", "kind", "key", "queue", "partition", "messages", "size", "step", "request"),
    *("producer", "sequence"),
)


def read_rows(session: SparkSession, path: str, options: dict[str, str]) -> DataFrame:
    """Every row that a census needs, in the census's columns. Names are bytes: what is shown alike may not be the same.
    Acks, trims and reclaims are left out by the data source. `options`: the data source's."""
    fields = [SCHEMA[name] for name in _COLUMNS]
    schema = StructType([StructField(field.name, BinaryType()) if field.name in _NAMES else field for field in fields])
    rows = session.read.format("shoal").options(**options).schema(schema).load(path)
    rows = rows.where(f.col("kind").isin(*MEMBERSHIP_KINDS, "publish", "purge", "other", "own", "damaged"))
    return rows.withColumn("at_ms", f.unix_millis("time")).drop("time")


@dataclass(frozen=True, slots=True)
class Overview:
    """`first_lsns`: by slice. `partitions`: the cluster's; 0: unknown. `ownerless`: slices that do not say what they
    own. `records_lost`: in damage that was skipped."""

    first_ms: int
    last_ms: int
    first_lsns: dict[str, int]
    partitions: int
    ownerless: frozenset[str]
    records_lost: int
    repeats: int

    @property
    def incomplete(self) -> frozenset[str]:
        return frozenset(name for name, lsn in self.first_lsns.items() if lsn > 1)


def frames_of(rows: DataFrame) -> DataFrame:
    """One row for each record, with `repeat`: the slice had that producer's frame already, and changed nothing."""
    frames = rows.groupBy("slice", "lsn").agg(
        f.min(f.when(f.col("kind") != "damaged", f.col("at_ms"))).alias("at_ms"),
        f.first("producer").alias("producer"),
        f.first("sequence").alias("sequence"),
        f.max(f.when(f.col("kind") == "own", f.col("messages"))).alias("partitions"),
        f.sum(f.when(f.col("kind") == "damaged", f.col("messages"))).alias("lost"),
    )
    before = Window.partitionBy("slice", "producer").orderBy("lsn").rowsBetween(Window.unboundedPreceding, -1)
    highest = f.max("sequence").over(before)
    return frames.withColumn("repeat", f.col("producer").isNotNull() & (f.col("sequence") <= highest))


def look_over(frames: DataFrame) -> Overview:
    """Raises BadCall for an archive of nothing."""
    found = (
        frames.groupBy("slice")
        .agg(
            f.min("at_ms").alias("first_ms"),
            f.max("at_ms").alias("last_ms"),
            f.min("lsn").alias("first_lsn"),
            f.max("partitions").alias("partitions"),
            f.sum("lost").alias("lost"),
            f.sum(f.col("repeat").cast("int")).alias("repeats"),
        )
        .collect()
    )
    if all(row.first_ms is None for row in found):
        raise BadCall("the archive has no records yet: a node archives closed segments, and all when it stops")
    return Overview(
        min(row.first_ms for row in found if row.first_ms is not None),
        max(row.last_ms for row in found if row.last_ms is not None),
        {row.slice: row.first_lsn for row in found},
        max(row.partitions or 0 for row in found),
        frozenset(row.slice for row in found if row.partitions is None),
        sum(row.lost or 0 for row in found),
        sum(row.repeats or 0 for row in found),
    )


@dataclass(frozen=True, slots=True)
class Owned:
    """From `lsn` until the slice's next one. `flags`: a 1 or 0 for each partition."""

    slice: str
    lsn: int
    flags: str


def ownership_of(rows: DataFrame, partitions: int) -> list[Owned]:
    """By slice and LSN."""
    own = rows.where("kind = 'own'")
    found: list[Owned] = []
    for row in own.groupBy("slice", "lsn").agg(f.collect_list("partition").alias("owned")).collect():
        flags = ["0"] * partitions
        for partition in row.owned:
            flags[partition] = "1"
        found.append(Owned(row.slice, row.lsn, "".join(flags)))
    return sorted(found, key=lambda one: (one.slice, one.lsn))


def requests_of(
    rows: DataFrame, frames: DataFrame, overview: Overview, ownership: list[Owned], *kinds: str
) -> DataFrame:
    """With `owned`: the slice owned the key's partition then, or does not say what it owns."""
    found = rows.where(f.col("kind").isin(*kinds)).drop("producer", "sequence")
    if overview.repeats:
        repeats = frames.where("repeat").select("slice", "lsn")
        found = found.join(f.broadcast(repeats), ["slice", "lsn"], "left_anti")
    return found.withColumn("owned", _is_owned(ownership, overview))


def _is_owned(ownership: list[Owned], overview: Overview) -> Column:
    """A literal for each word of a slice about what it owns: there are few. Before the first word of an incomplete
    archive that one holds. A key whose partition cannot be told counts as owned."""
    owned = f.col("slice").isin(*overview.ownerless) if overview.ownerless else f.lit(False)
    before = ""
    for one in ownership:
        from_lsn = 0 if one.slice in overview.incomplete and one.slice != before else one.lsn
        flag = f.substr(f.lit(one.flags), f.col("partition") + 1, f.lit(1)) == "1"
        here = (f.col("slice") == one.slice) & (f.col("lsn") >= from_lsn)
        owned = f.when(here, f.coalesce(flag, f.lit(True))).otherwise(owned)
        before = one.slice
    return owned


def changes_in(requests: DataFrame, incomplete: frozenset[str]) -> DataFrame:
    """Each queue's requests in order through `changes_of`, with one queue's memberships in memory at a time."""
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
