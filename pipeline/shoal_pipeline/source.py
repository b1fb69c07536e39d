"""Spark's data source `shoal`: archives as batches and streams, stores as tables.

    spark.read.format("shoal").load(ARCHIVE)                                every row of an archive (archive/schema.py)
    spark.readStream.format("shoal").load(ARCHIVE)                          the same, as it grows
    spark.read.format("shoal").option("table", "bindings").load(FOLDER)     a stopped node's store (snapshot/schema.py)

| option | for | means |
|---|---|---|
| table | | changes (default): an archive; queues, keys, bindings, backlog: a store |
| damage | archive | fail (default): Corrupt names file and byte; skip: rows of kind `damaged` tell what is lost |
| partitions | archive | how many the cluster has, where the archive's first records do not say |
| maxSegmentsPerTrigger | stream | segments in one step; default: all there are |
| journal | store | refuse (default) a store whose journal has more than its checkpoint; ignore: only the checkpoint |
| ranges | store | how many Spark partitions for each slice; default 4 |

Belongs here: readers from options. Executors must see the folder under the same path; URLs (s3a:, hdfs:) are refused.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from shoal_contract.errors import BadCall
from shoal_contract.limits import PARTITIONS_MAX
from shoal_pipeline.archive.reader import ArchiveOptions, ArchiveReader
from shoal_pipeline.archive.schema import SCHEMA
from shoal_pipeline.archive.stream import ArchiveStreamReader
from shoal_pipeline.limits import SNAPSHOT_RANGES, SNAPSHOT_RANGES_MAX, STREAM_SEGMENTS_MAX
from shoal_pipeline.locations import folder_of
from shoal_pipeline.snapshot.reader import SnapshotOptions, SnapshotReader
from shoal_pipeline.snapshot.schema import TABLES

CHANGES = "changes"


def register(session: SparkSession) -> None:
    """Makes `format("shoal")` known, and lets Spark hand filters down to it."""
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(ShoalSource)


class ShoalSource(DataSource):
    """Is the data source that is described above. Wrong options raise BadCall."""

    @classmethod
    def name(cls) -> str:
        return "shoal"

    def schema(self) -> StructType:
        table = self._table()
        return SCHEMA if table == CHANGES else TABLES[table]

    def reader(self, schema: StructType) -> DataSourceReader:
        table = self._table()
        if table == CHANGES:
            return ArchiveReader(self._archive(), schema)
        ranges = self._number("ranges", SNAPSHOT_RANGES, SNAPSHOT_RANGES_MAX)
        behind = self._one_of("journal", ("refuse", "ignore")) == "ignore"
        return SnapshotReader(SnapshotOptions(self._path(), table, ranges, behind), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        if self._table() != CHANGES:
            raise BadCall("a store is no stream; table must be changes", subject="table")
        return ArchiveStreamReader(self._archive(), schema)

    def _archive(self) -> ArchiveOptions:
        return ArchiveOptions(
            self._path(),
            self._number("partitions", 0, PARTITIONS_MAX) or None,
            self._one_of("damage", ("fail", "skip")) == "skip",
            self._number("maxSegmentsPerTrigger", 0, STREAM_SEGMENTS_MAX),
        )

    def _table(self) -> str:
        return self._one_of("table", (CHANGES, *TABLES))

    def _path(self) -> Path:
        path = self.options.get("path")
        if not path:
            raise BadCall("a folder is needed: load(FOLDER)", subject="path")
        return folder_of(path, "archive" if self._table() == CHANGES else "store")

    def _one_of(self, name: str, values: tuple[str, ...]) -> str:
        """Returns the value of an option. The first of `values` is the default."""
        value = self.options.get(name, values[0])
        if value not in values:
            raise BadCall(f"option {name} is {value}; it can be {', '.join(values)}", subject=name)
        return str(value)

    def _number(self, name: str, default: int, maximum: int) -> int:
        given = self.options.get(name)
        if given is None:
            return default
        if not given.isdecimal() or not 0 < int(given) <= maximum:
            raise BadCall(f"option {name} is {given}; it needs 1 to {maximum}", subject=name, limit=maximum)
        return int(given)
