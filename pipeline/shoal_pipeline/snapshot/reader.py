"""Reads a store as a batch, with one Spark partition for each range of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from shoal_contract.errors import BadCall
from shoal_pipeline.limits import ARROW_ROWS
from shoal_pipeline.snapshot.schema import TABLES
from shoal_pipeline.snapshot.store import find_nodes, opened
from shoal_pipeline.snapshot.tables import bounds_of, rows_of


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Holds the options of a store. `ranges`: how many for each slice."""

    path: Path
    table: str
    ranges: int
    ignore_journal: bool


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """Is one Spark partition. `value`: a node's folder, first and end of the range."""

    value: tuple[Path, int, int]


class SnapshotReader(DataSourceReader):
    """Reads stores in Spark. Raises BadCall, Conflict, Corrupt as snapshot.store does."""

    def __init__(self, options: SnapshotOptions, schema: StructType) -> None:
        self._options = options
        self._names = [field.name for field in TABLES[options.table]]
        self._schema = schema
        for field in schema:
            if field.name not in self._names:
                raise BadCall(f"table {options.table} has no column {field.name}; it has {', '.join(self._names)}")

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        for node in find_nodes(self._options.path):
            with opened(node, self._options.ignore_journal) as tables:
                first, end = bounds_of(tables, self._options.table)
            step = max(1, -(-(end - first) // self._options.ranges))
            found += [RangePartition((node, low, min(low + step, end))) for low in range(first, end, step)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        node, first, end = partition.value
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with opened(node, ignore_journal=True) as tables:
            rows = rows_of(tables, self._options.table, first, end)
            while some := list(islice(rows, ARROW_ROWS)):
                columns = dict(
                    zip(self._names, [[node.name] * len(some), *map(list, zip(*some, strict=True))], strict=True)
                )
                arrays = [pa.array(columns[field.name], field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
