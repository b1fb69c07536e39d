"""Turns rows into Arrow record batches of the requested columns, in the types that Spark expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from shoal_contract.errors import BadCall
from shoal_contract.names import text
from shoal_pipeline.archive.folder import Span
from shoal_pipeline.archive.records import Damage, read_span
from shoal_pipeline.archive.rows import Names, Rows
from shoal_pipeline.archive.schema import KINDS, SCHEMA
from shoal_pipeline.archive.wanted import Wanted
from shoal_pipeline.limits import ARROW_ROWS

_KINDS = pa.array(KINDS)
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class Reading:
    """Says how spans are read. `partitions`: how many the cluster has; None: unknown."""

    schema: StructType
    wanted: Wanted
    partitions: int | None
    skip_damage: bool


def check_schema(schema: StructType) -> None:
    """Raises BadCall for a column that an archive does not have."""
    known = {field.name for field in SCHEMA}
    for field in schema:
        if field.name not in known:
            raise BadCall(f"an archive has no column {field.name}; it has {', '.join(sorted(known))}")


def read_batches(span: Span, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Yields the wanted rows of a span, in batches. Raises Corrupt as `read_span` does."""
    schema = to_arrow_schema(reading.schema, timezone="UTC")
    rows = Rows(reading.partitions, reading.wanted.kinds)
    for found in read_span(span, reading.skip_damage):
        if not reading.wanted.has_time(found.time_ms):
            continue
        if isinstance(found, Damage):
            rows.add_damage(found)
        else:
            rows.add(found)
        if rows.count >= ARROW_ROWS:
            yield to_batch(rows, span.slice, schema)
            rows.clear()
    if rows.count:
        yield to_batch(rows, span.slice, schema)


def to_batch(rows: Rows, slice_name: str, schema: pa.Schema) -> pa.RecordBatch:
    where = np.repeat(np.arange(len(rows.runs)), [run.rows for run in rows.runs])

    def spread(values: list[int], kind: pa.DataType) -> pa.Array:
        return pa.array(np.array(values, dtype=np.int64)[where]).cast(kind)

    def spread_nullable(values: list[bytes | None] | list[int | None], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(where))

    columns: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "time": lambda kind: spread([run.time_ms * 1000 for run in rows.runs], kind),
        "lsn": lambda kind: spread([run.lsn for run in rows.runs], kind),
        "slice": lambda kind: pa.repeat(pa.scalar(slice_name, kind), rows.count),
        "kind": lambda _: _KINDS.take(spread([_KIND_CODES[run.kind] for run in rows.runs], pa.int64())),
        "key": lambda kind: _names(rows.keys, kind),
        "queue": lambda kind: _names(rows.queues, kind),
        "partition": lambda kind: pa.array(rows.partitions, kind),
        "offset": lambda kind: pa.array(rows.offsets, kind),
        "messages": lambda kind: pa.array(rows.messages, kind),
        "size": lambda kind: pa.array(rows.sizes, kind),
        "step": lambda kind: spread([run.step for run in rows.runs], kind),
        "request": lambda kind: pa.array(rows.requests, kind),
        "producer": lambda kind: spread_nullable([run.producer for run in rows.runs], kind),
        "sequence": lambda kind: spread_nullable([run.sequence for run in rows.runs], kind),
    }
    return pa.RecordBatch.from_arrays([columns[field.name](field.type) for field in schema], schema=schema)


def _names(names: Names, kind: pa.DataType) -> pa.Array:
    """Returns names as bytes, or as text for people."""
    data = pa.array(names, pa.binary())
    if pa.types.is_binary(kind):
        return data
    try:
        return data.cast(kind)
    except pa.ArrowInvalid:  # a name that is not UTF-8
        return pa.array([None if name is None else text(name) for name in names], kind)
