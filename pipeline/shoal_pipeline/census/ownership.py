"""Finds which partitions a slice owned at each of its records, from OWNERSHIP records, to join that with its requests.

A request for a key that its slice did not own was refused, so it must not count. There may be many thousands of pairs
of a slice and a map version, so this is a table that Spark joins with, not a part of the query's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

FOR_EVER: Final = 1 << 62
"""A value above every LSN."""


@dataclass(frozen=True, slots=True)
class Owned:
    """Says what a slice owned from `lsn` on, until its next OWNERSHIP record."""

    slice: str
    lsn: int
    partitions: frozenset[int]


class Tenure(NamedTuple):
    """Says that a slice owned a partition at its records from_lsn <= lsn < to_lsn."""

    of_slice: str
    of_partition: int
    from_lsn: int
    to_lsn: int


def ownership_of(rows: DataFrame) -> list[Owned]:
    """Returns every OWNERSHIP record of an archive, by slice and LSN. A slice writes one at each start."""
    own = rows.where("kind = 'own'").groupBy("slice", "lsn").agg(f.collect_list("partition").alias("owned"))
    found = [Owned(row.slice, row.lsn, frozenset(row.owned)) for row in own.collect()]
    return sorted(found, key=attrgetter("slice", "lsn"))


def tenures(ownership: Iterable[Owned], incomplete: frozenset[str]) -> Iterator[Tenure]:
    """Yields the tenures. `ownership`: by slice and LSN. `incomplete`: slices whose archive does not begin at the
    beginning; there the first OWNERSHIP record also holds for the records before it. Pure."""
    for name, records in groupby(ownership, attrgetter("slice")):
        held: dict[int, int] = {}
        from_lsn = 0 if name in incomplete else None
        for record in records:
            for partition in sorted(held.keys() - record.partitions):
                yield Tenure(name, partition, held.pop(partition), record.lsn)
            begun = record.lsn if from_lsn is None else from_lsn
            held |= dict.fromkeys(record.partitions - held.keys(), begun)
            from_lsn = None
        yield from (Tenure(name, partition, begun, FOR_EVER) for partition, begun in sorted(held.items()))


def with_owned(
    requests: DataFrame, ownership: Sequence[Owned], incomplete: frozenset[str], ownerless: frozenset[str]
) -> DataFrame:
    """Adds the column `owned`: whether the slice owned the key's partition then. It is also true where the partition is
    unknown, and for the `ownerless` slices, which do not say what they own."""
    known = f.col("partition").isNull()
    if ownerless:
        known |= f.col("slice").isin(*ownerless)
    columns = zip(*tenures(ownership, incomplete), strict=True)
    if not ownership or not (found := list(columns)):
        return requests.withColumn("owned", known)
    table = pa.table(
        {
            "of_slice": pa.array(found[0], pa.string()),
            "of_partition": pa.array(found[1], pa.int32()),
            "from_lsn": pa.array(found[2], pa.int64()),
            "to_lsn": pa.array(found[3], pa.int64()),
        }
    )
    held = f.broadcast(requests.sparkSession.createDataFrame(table))
    here = (f.col("slice") == f.col("of_slice")) & (f.col("partition") == f.col("of_partition"))
    then = (f.col("lsn") >= f.col("from_lsn")) & (f.col("lsn") < f.col("to_lsn"))
    joined = requests.join(held, here & then, "left")
    return joined.withColumn("owned", known | f.col("from_lsn").isNotNull()).drop(*Tenure._fields)
