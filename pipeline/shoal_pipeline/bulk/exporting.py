"""Turns a slice's memberships into rows: pages of its Export become Arrow columns in a Spark Python worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from shoal_contract.wire import bulk_pb2 as wire
from shoal_pipeline.bulk.cluster import bulk_stub

Batches = Iterator[pa.RecordBatch]

DONE_RANGE: Final = StructType([StructField("first", LongType(), False), StructField("to", LongType(), False)])
MEMBERSHIP: Final = StructType(
    [
        StructField("slice", StringType(), False),
        StructField("lsn", LongType(), False),
        StructField("queue", BinaryType(), False),
        StructField("key", BinaryType(), False),
        StructField("start", LongType(), False),
        StructField("cursor", LongType(), False),
        StructField("end", LongType()),
        StructField("done", ArrayType(DONE_RANGE, False), False),
    ]
)
"""The columns of a membership. `lsn`: of the snapshot. `end`: of a binding that ended with a backlog, else null.
`done`: first <= offset < to."""

TARGET: Final = StructType([StructField("slice", StringType(), False), StructField("address", StringType(), False)])
_ARROW: Final = to_arrow_schema(MEMBERSHIP)


def exporter(direct: bool) -> Callable[[Batches], Batches]:
    """Returns a function from rows of TARGET to rows of MEMBERSHIP. `direct`: with the queues' own direct keys."""

    def export(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                with bulk_stub(row["slice"], row["address"]) as stub:
                    for page in stub.Export(wire.ExportRequest()):
                        yield _rows(row["slice"], page, direct)

    return export


def _rows(slice_name: str, page: wire.ExportResponse, direct: bool) -> pa.RecordBatch:
    count = len(page.keys)
    queue_of = np.repeat(np.arange(len(page.queues)), np.asarray(page.key_counts, dtype=np.int64))
    ends = np.asarray(page.ends, dtype=np.int64)
    pairs = np.asarray(page.done, dtype=np.int64).reshape(-1, 2)
    done_type = _ARROW.field("done").type
    ranges = pa.StructArray.from_arrays(
        [pa.array(pairs[:, 0]), pa.array(pairs[:, 1])], fields=list(done_type.value_type)
    )
    offsets = np.concatenate([[0], np.cumsum(np.asarray(page.done_counts, dtype=np.int32))]).astype(np.int32)
    columns = [
        pa.array([slice_name] * count, pa.string()),
        pa.array(np.full(count, page.lsn, dtype=np.int64)),
        pa.array(list(page.queues), pa.binary()).take(pa.array(queue_of)),
        pa.array(list(page.keys), pa.binary()),
        pa.array(np.asarray(page.starts, dtype=np.int64)),
        pa.array(np.asarray(page.cursors, dtype=np.int64)),
        pa.array(ends, mask=ends == 0),
        pa.ListArray.from_arrays(pa.array(offsets), ranges, type=done_type),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_ARROW)
    if direct:
        return batch
    named = pa.array([not key.startswith(b"@") for key in page.keys], pa.bool_())
    return batch.filter(named)
