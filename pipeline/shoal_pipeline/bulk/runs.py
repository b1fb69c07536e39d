"""Writes and reads run files: what a load has sorted, ready to be imported again and again until it is done.

    <folder>/chunks     Parquet, one row a chunk, sorted by slice, part, number:
        slice       index into the manifest's slices
        part        number of the Spark task that wrote it, ascending with the queues' names
        number      of the chunk in its part
        queues, memberships, expected    counts (packing.Chunk)
        checksum    CRC-32 of `change`
        change      a serialized shoal.v1.Change of one step, Imports: at most 1,000 queues and keys, sorted by both
    <folder>/manifest   one line of JSON, written when all chunks are there: Manifest
    <folder>/done       one line of JSON, written when the cluster has all of it, verified

A slice's chunks in order of (part, number) are chunks 1, 2, 3 ... of the run. All three are written by Spark, so they
may lie wherever it can write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from shoal_contract.errors import Malformed
from shoal_contract.names import DIRECT_PREFIX
from shoal_contract.partition_map import PartitionMap
from shoal_pipeline.bulk.packing import Membership, pack
from shoal_pipeline.limits import CHUNKS_PER_BATCH

FORM: Final = "shoal bulk run 1"

_TAG_HEX: Final = "^(?:40)?7B((?:(?!7D)[0-9A-F]{2})+)7D"
"""Matches a key that begins with a tag, `{tag}` or `@{tag}`, in hexadecimal digits."""

CHUNK: Final = StructType(
    [
        *(StructField(name, IntegerType(), False) for name in ("slice", "part", "number")),
        *(StructField(name, IntegerType(), False) for name in ("queues", "memberships", "expected")),
        StructField("checksum", LongType(), False),
        StructField("change", BinaryType(), False),
    ]
)


@dataclass(frozen=True, slots=True)
class SliceRun:
    """Describes a run's part for one slice. `parts`: (part, its chunks), ascending. `checksum`: the sum of its chunks'
    checksums."""

    slice: str
    parts: tuple[tuple[int, int], ...]
    memberships: int
    expected: int
    checksum: int

    @property
    def chunks(self) -> int:
        return sum(chunks for _, chunks in self.parts)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describes a run. `run`: 32 hex digits. `partition_map`: the cluster's when the run was sorted. `rejected`: rows
    left out."""

    run: str
    inputs: tuple[str, ...]
    partition_map: PartitionMap
    slices: tuple[SliceRun, ...]
    rejected: int

    @property
    def memberships(self) -> int:
        return sum(one.memberships for one in self.slices)

    def encode(self) -> str:
        return json.dumps(
            {
                "form": FORM,
                "run": self.run,
                "inputs": self.inputs,
                "map": self.partition_map.encode().decode(),
                "slices": [asdict(one) for one in self.slices],
                "rejected": self.rejected,
            }
        )

    @staticmethod
    def decode(text: str) -> Manifest:
        """Returns the manifest in a text. Raises Malformed."""
        try:
            found = json.loads(text)
            if found["form"] != FORM:
                raise ValueError(f"its form is {found['form']!r}, this version reads {FORM!r}")
            slices = tuple(
                SliceRun(**{**one, "parts": tuple((part, chunks) for part, chunks in one["parts"])})
                for one in found["slices"]
            )
            partition_map = PartitionMap.decode(found["map"].encode())
            return Manifest(found["run"], tuple(found["inputs"]), partition_map, slices, int(found["rejected"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"the run's manifest cannot be read: {error}") from None


def write_chunks(rows: DataFrame, partition_map: PartitionMap, folder: str, parts: int) -> None:
    """Sorts good rows by owner, queue and key, packs them and writes the chunks. Replaces what is there."""
    # Slice and queue are one value, as Spark compares the first 8 bytes of the first column much faster than the rest.
    place = F.concat(F.unhex(F.lpad(F.hex("slice"), 4, "0")), F.col("queue")).alias("place")
    located = _located(rows, partition_map).select(place, "key", "start")
    in_order = located.repartitionByRange(parts, "place").sortWithinPartitions(
        "place", "key", F.asc_nulls_last("start")
    )
    in_order.mapInArrow(_packed, CHUNK).write.mode("overwrite").parquet(f"{folder}/chunks")


def _located(rows: DataFrame, partition_map: PartitionMap) -> DataFrame:
    """Returns slice, queue, key, start. For a queue whose home is another slice it adds a row there without a key,
    since a queue exists where its home knows it."""
    columns = ("slice", "queue", "key", "start")
    owner = owner_index(F.col("key"), partition_map)
    home = owner_index(F.concat(F.lit(DIRECT_PREFIX), F.col("queue")), partition_map)
    here = rows.select(owner.alias("slice"), "queue", "key", "start", home.alias("home"))
    if len(set(partition_map.owners)) == 1:
        return here.select(*columns)
    homes = here.where(F.col("home") != F.col("slice")).select("home", "queue").distinct()
    nothing = (F.lit(None).cast("binary").alias("key"), F.lit(None).cast("long").alias("start"))
    return here.select(*columns).unionAll(homes.select(F.col("home").alias("slice"), "queue", *nothing))


def owner_index(key: Column, partition_map: PartitionMap) -> Column:
    """Returns the index of the slice that owns `key` (binary): Spark's crc32 is the contract's."""
    owners = F.lit(list(partition_map.owners))
    return F.get(owners, (F.crc32(_hashed_part(key)) % F.lit(partition_map.partitions)).cast("int")).cast("int")


def _hashed_part(key: Column) -> Column:
    """Returns the bytes of `key` that are hashed: see the contract's `hashed_part`. Looks at hexadecimal digits, as
    Spark searches in no binary."""
    tag = F.regexp_extract(F.hex(key), _TAG_HEX, 1)
    tagged = F.substring(key, 1, 1).isin(b"{", b"@") & (tag != "")
    return F.when(tagged, F.unhex(tag)).otherwise(key)


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    chunks: list[dict[str, Any]] = []
    for number, chunk in enumerate(pack(_rows(batches))):
        chunks.append({**chunk._asdict(), "part": part, "number": number})
        if len(chunks) == CHUNKS_PER_BATCH:
            yield _batch(chunks)
            chunks = []
    if chunks:
        yield _batch(chunks)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Membership]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("place", "key", "start")]
        for place, key, start in zip(*columns, strict=True):
            yield int.from_bytes(place[:2], "big"), place[2:], key, start


def _batch(chunks: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(chunks, schema=to_arrow_schema(CHUNK))


def chunks_of(session: SparkSession, folder: str) -> DataFrame:
    return session.read.schema(CHUNK).parquet(f"{folder}/chunks")


def summary(session: SparkSession, folder: str, slices: Sequence[str]) -> tuple[SliceRun, ...]:
    """Returns the counts of what was written."""
    totals = (F.sum(name).alias(name) for name in ("memberships", "expected", "checksum"))
    found = chunks_of(session, folder).groupBy("slice", "part").agg(F.count("*").alias("chunks"), *totals)
    rows = sorted(found.collect(), key=lambda row: (row["slice"], row["part"]))
    return tuple(
        _slice_run(slices[index], list(parts)) for index, parts in groupby(rows, key=lambda row: int(row["slice"]))
    )


def _slice_run(name: str, rows: Sequence[Row]) -> SliceRun:
    totals = [sum(int(row[column]) for row in rows) for column in ("memberships", "expected", "checksum")]
    return SliceRun(name, tuple((row["part"], row["chunks"]) for row in rows), *totals)


def write_line(session: SparkSession, path: str, line: str) -> None:
    """Writes one line of text, as a whole or not at all."""
    session.createDataFrame([(line,)], "value string").coalesce(1).write.mode("overwrite").text(path)


def read_line(session: SparkSession, path: str) -> str | None:
    """Returns the line; None if it was never written, or not to its end."""
    try:
        row = session.read.text(path).first()
    except AnalysisException:
        return None
    return None if row is None else str(row["value"])
