"""Reads the memberships to load from Parquet or CSV, and judges each row.

    queue, key    names: strings (UTF-8) or binary, 1-255 bytes; keys not beginning with @
    start         only if asked for: the offset to start at; null: now
    end           where there is such a column (an export): rows with an end are no longer memberships, and left out

Belongs here: reading and judging. Not here: where rows go (runs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import BinaryType, StringType

from shoal_contract.errors import BadCall, InvalidName, Malformed
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import DIRECT_PREFIX

FORMATS = ("parquet", "csv")
_SHOWN_BYTES = 100


def read_memberships(session: SparkSession, paths: Sequence[str], form: str, start_column: str) -> DataFrame:
    """Returns rows with columns queue, key (binary), start (long), problem (null: none), file, row (from 0; null in
    CSV).

    `form` "": by the first path's name. `start_column` "": everything starts now. Raises BadCall, Malformed.
    """
    form = form or PurePath(paths[0].rstrip("/")).suffix.removeprefix(".") or "parquet"
    if form not in FORMATS:
        raise BadCall(f"{paths[0]} ends in .{form}: say --format parquet or --format csv", subject="format")
    reader = session.read.option("header", True) if form == "csv" else session.read
    read = reader.format(form).load(list(paths))
    _check_columns(read, paths, start_column)
    if "end" in read.columns:
        read = read.where(F.col("end").isNull())
    place = [F.col("_metadata.file_name").alias("file")]
    place.append((F.col("_metadata.row_index") if form == "parquet" else F.lit(None)).cast("long").alias("row"))
    start = F.col(start_column) if start_column else F.lit(None)
    rows = read.select(
        F.col("queue").cast("binary").alias("queue"),
        F.col("key").cast("binary").alias("key"),
        F.try_to_number(start, F.lit("9" * 19)).cast("long").alias("start")
        if start_column and isinstance(read.schema[start_column].dataType, StringType)
        else start.cast("long").alias("start"),
        start.cast("string").alias("start_text"),
        *place,
    )
    return rows.withColumn("problem", _problem()).drop("start_text")


def _check_columns(read: DataFrame, paths: Sequence[str], start_column: str) -> None:
    for name in ("queue", "key", *filter(None, [start_column])):
        if name not in read.columns:
            has = ", ".join(read.columns)
            raise Malformed(f"{paths[0]} has no column {name}; it has {has}", subject=name)
    for name in ("queue", "key"):
        kind = read.schema[name].dataType
        if not isinstance(kind, StringType | BinaryType):
            raise Malformed(f"{paths[0]}: column {name} is {kind.simpleString()}; it needs string or binary")


def _problem() -> Column:
    checks = [(name, F.col(name), F.octet_length(name)) for name in ("queue", "key")]
    found = F.lit(None).cast("string")
    found = F.when(
        F.col("start_text").isNotNull() & (F.col("start").isNull() | (F.col("start") < 1)),
        F.concat(F.lit("start is "), F.col("start_text"), F.lit("; offsets begin at 1")),
    ).otherwise(found)
    found = F.when(
        F.substring("key", 1, 1) == F.lit(DIRECT_PREFIX), F.lit("key name begins with @: reserved for direct keys")
    ).otherwise(found)
    for name, column, size in reversed(checks):
        limit = f"; the limit is {NAME_BYTES_MAX}"
        found = (
            F.when(column.isNull(), F.lit(f"{name} is missing"))
            .when(size == 0, F.lit(f"{name} name is empty; it needs 1 to {NAME_BYTES_MAX} bytes"))
            .when(
                size > NAME_BYTES_MAX, F.concat(F.lit(f"{name} name is "), size.cast("string"), F.lit(f" bytes{limit}"))
            )
            .otherwise(found)
        )
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """Holds the result of judging all rows. `first_bad`: file, row, problem, queue, key of one bad row; None: there is
    none."""

    rows: int
    bad: int
    first_bad: Row | None

    def refuse(self) -> None:
        """Raises InvalidName or Malformed if a row is bad, with its place."""
        bad = self.first_bad
        if bad is None:
            return
        place = bad["file"] if bad["row"] is None else f"{bad['file']}, row {bad['row']}"
        kind = InvalidName if " name " in bad["problem"] else Malformed
        raise kind(
            f"{place}: {bad['problem']} (queue {bad['queue']!r}, key {bad['key']!r}); {self.bad:,} rows are bad; with"
            " --rejects DIR such rows are kept aside and the rest is loaded",
            subject=place,
            limit=NAME_BYTES_MAX,
        )


def judge(rows: DataFrame) -> Judged:
    """Counts good and bad rows, in one pass over all of them."""
    shown = F.when(F.col("problem").isNotNull(), F.struct(*_shown()))
    found = rows.agg(
        F.count("*").alias("rows"), F.count("problem").alias("bad"), F.first(shown, ignorenulls=True).alias("first")
    ).first()
    assert found is not None
    return Judged(found["rows"], found["bad"], found["first"])


def shown_rejects(rows: DataFrame) -> DataFrame:
    """Returns the bad rows for people: file, row, problem, queue, key."""
    return rows.where(F.col("problem").isNotNull()).select(*_shown())


def _shown() -> list[Column]:
    names = [F.expr(f"cast(substring({name}, 1, {_SHOWN_BYTES}) as string)").alias(name) for name in ("queue", "key")]
    return [F.col("file"), F.col("row"), F.col("problem"), *names]
