"""Reads an archive as a batch, with one Spark partition for each segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from shoal_pipeline.archive.batches import Reading, check_schema, read_batches
from shoal_pipeline.archive.folder import Span, list_spans
from shoal_pipeline.archive.records import find_partitions
from shoal_pipeline.archive.wanted import Wanted, choose_spans, push


@dataclass(frozen=True)
class SpanPartition(InputPartition):
    """Is one Spark partition. `value`: what to read, and how."""

    value: tuple[Span, Reading]


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Holds the options of an archive. `partitions` None: look into the archive. `segments_max`: for one step of a
    stream; 0: no bound."""

    path: Path
    partitions: int | None = None
    skip_damage: bool = False
    segments_max: int = 0


def plan(spans: Sequence[Span], reading: Reading) -> list[InputPartition]:
    return [SpanPartition((span, reading)) for span in spans]


def read_planned(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yields the batches of a partition; none for a partition without a value, which Spark plans where there is nothing
    to read."""
    if partition.value is not None:
        yield from read_batches(*partition.value)


class ArchiveReader(DataSourceReader):
    """Reads an archive in Spark. It applies filters on time, kind and slice itself, and leaves the others to Spark."""

    def __init__(self, options: ArchiveOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        self._wanted, left = push(self._wanted, filters)
        return left

    def partitions(self) -> list[InputPartition]:
        spans = list_spans(self._options.path)
        partitions = self._options.partitions or find_partitions(spans)
        reading = Reading(self._schema, self._wanted, partitions, self._options.skip_damage)
        return plan(choose_spans(spans, self._wanted), reading)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_planned(partition)
