"""Reads an archive as a stream: everything that is new, segment by segment, each record once.

A stream's offset, which Spark keeps in the checkpoint, is {slice: the next LSN}. A slice that is not in it begins at
its oldest segment. Belongs here: offsets and limits. Not here: reading (batches.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from shoal_contract.errors import OutOfRange
from shoal_pipeline.archive.batches import Reading, check_schema
from shoal_pipeline.archive.folder import Span, by_slice, end_lsn, list_spans
from shoal_pipeline.archive.reader import ArchiveOptions, plan, read_planned
from shoal_pipeline.archive.records import find_partitions
from shoal_pipeline.archive.wanted import Wanted

Offset = dict[str, int]


class ArchiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams an archive. With Trigger.AvailableNow it reads what is there when the run begins, and then ends."""

    def __init__(self, options: ArchiveOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - this and the following are Spark's names
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(self._options.segments_max) if self._options.segments_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._newest(list_spans(self._options.path))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        spans = list_spans(self._options.path)
        target = self._target if self._target is not None else self._newest(spans)
        latest = dict(start)
        left = limit.max_files if isinstance(limit, ReadMaxFiles) else len(spans)
        for span in _between(spans, start, target, self._options.skip_damage)[:left]:
            assert span.to_lsn is not None
            latest[span.slice] = span.to_lsn
        return latest

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return self._newest(list_spans(self._options.path)) or None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        spans = list_spans(self._options.path)
        partitions = self._options.partitions or find_partitions(spans)
        reading = Reading(self._schema, Wanted(), partitions, self._options.skip_damage)
        return plan(_between(spans, start, end, self._options.skip_damage), reading)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_planned(partition)

    def _newest(self, spans: list[Span]) -> Offset:
        return {name: end_lsn(those[-1]) for name, those in by_slice(spans).items()}


def _between(spans: list[Span], start: Offset, end: Offset, skip_missing: bool) -> list[Span]:
    """Returns the spans, cut to start <= lsn < end. Raises OutOfRange when records from `start` on are no longer
    archived."""
    found: list[Span] = []
    for name, those in by_slice(spans).items():
        low, high = start.get(name, those[0].first_lsn), end.get(name, 0)
        if low < high and those[0].first_lsn > low and not skip_missing:
            text = f"archive of slice {name} begins at LSN {those[0].first_lsn}; the stream goes on at {low}"
            raise OutOfRange(text, subject=name, limit=those[0].first_lsn, value=low)
        for span in those:
            from_lsn = max(span.from_lsn, low)
            to_lsn = high if span.to_lsn is None else min(span.to_lsn, high)
            if from_lsn < to_lsn:
                found.append(replace(span, from_lsn=from_lsn, to_lsn=to_lsn))
    return found
