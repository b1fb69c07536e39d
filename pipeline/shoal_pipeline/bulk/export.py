"""The job `export`: every membership of a cluster to Parquet, each slice as of one LSN, all slices at once."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal_contract.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY = "Write a cluster's memberships and cursors to Parquet."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="DIR", help="a folder that is not there yet")
    parser.add_argument("--at", required=True, metavar="HOST:PORT[,...]", help="redirectors of the cluster")
    parser.add_argument("--overwrite", action="store_true", help="replace the folder")
    parser.add_argument("--strings", action="store_true", help="names as strings; those that are not UTF-8 are escaped")
    parser.add_argument("--direct", action="store_true", help="with the queues' own direct keys (@queue)")


def run(arguments: argparse.Namespace, session: SparkSession, say: Callable[[str], None]) -> int:
    """The exit code. Raises Conflict, Unavailable."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812

    began_s = time.monotonic()
    say(f"exporting from {arguments.at}")
    rows = memberships(session, arguments.at, arguments.direct)
    if arguments.strings:
        shown = F.udf(_shown, "string")
        rows = rows.withColumns({name: shown(name) for name in ("queue", "key")})
    try:
        rows.write.mode("overwrite" if arguments.overwrite else "error").parquet(arguments.output)
    except AnalysisException as error:
        if "PATH_ALREADY_EXISTS" not in str(error):
            raise
        raise Conflict(f"{arguments.output} is there already: --overwrite replaces it", subject="output") from None
    by_slice = session.read.parquet(arguments.output).groupBy("slice", "lsn").count().orderBy("slice").collect()
    for row in by_slice:
        say(f"{row['slice']}: {row['count']:,} memberships as of LSN {row['lsn']:,}")
    total = sum(row["count"] for row in by_slice)
    say(f"{total:,} memberships are in {arguments.output}, {time.monotonic() - began_s:.1f} s")
    return 0


def memberships(session: SparkSession, at: str, direct: bool) -> DataFrame:
    """Rows of exporting.MEMBERSHIP, a partition for each slice. Raises Unavailable."""
    from shoal_pipeline.bulk.cluster import fetch_map
    from shoal_pipeline.bulk.exporting import MEMBERSHIP, TARGET, exporter

    cluster = fetch_map(at)
    without = [name for name in cluster.slices if not cluster.address_of(name)]
    if without:
        raise Unavailable(f"slice {without[0]} has no leader now", subject=without[0])
    targets = [(name, cluster.address_of(name)) for name in cluster.slices]
    rows = session.sparkContext.parallelize(targets, len(targets))
    return session.createDataFrame(rows, TARGET).mapInArrow(exporter(direct), MEMBERSHIP)


def _shown(name: bytes) -> str:
    return bytes(name).decode("utf-8", "backslashreplace")
