"""The job `export`: writes every membership of a cluster to Parquet, each slice as of one LSN, all slices at once."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal_contract.errors import Unavailable
from shoal_pipeline.arguments import add_at
from shoal_pipeline.outputs import Outputs, check_replaceable, names_here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY = "Write a cluster's memberships and cursors to Parquet."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", metavar="DIR", help="a folder that is not there yet")
    add_at(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier export, and nothing else")
    parser.add_argument("--strings", action="store_true", help="names as strings; those that are not UTF-8 are escaped")
    parser.add_argument("--direct", action="store_true", help="include the bindings to direct keys (@queue)")


def check(arguments: argparse.Namespace, say: Callable[[str], None]) -> int | None:
    """Checks that the output may be written and that the cluster answers. Raises Conflict, Unavailable."""
    from shoal_pipeline.bulk.cluster import fetch_map

    check_replaceable(arguments.output, "export", names_here(arguments.output), _overwrite(arguments))
    fetch_map(arguments.at)
    return None


def run(arguments: argparse.Namespace, session: SparkSession, say: Callable[[str], None]) -> int:
    """Exports. Returns the exit code. Raises Conflict, Unavailable."""
    from pyspark.sql import functions as F  # noqa: N812

    began_s = time.monotonic()
    say(f"exporting from {arguments.at}")
    rows = memberships(session, arguments.at, arguments.direct)
    if arguments.strings:
        shown = F.udf(_shown, "string")
        rows = rows.withColumns({name: shown(name) for name in ("queue", "key")})
    Outputs(session).write(arguments.output, "export", _overwrite(arguments), lambda folder: rows.write.parquet(folder))
    by_slice = session.read.parquet(arguments.output).groupBy("slice", "lsn").count().orderBy("slice").collect()
    for row in by_slice:
        say(f"{row['slice']}: {row['count']:,} memberships as of LSN {row['lsn']:,}")
    total = sum(row["count"] for row in by_slice)
    say(f"{total:,} memberships are in {arguments.output}, {time.monotonic() - began_s:.1f} s")
    return 0


def _overwrite(arguments: argparse.Namespace) -> str:
    """Returns the option that the user may still give; "" where it was given."""
    return "" if arguments.overwrite else "--overwrite"


def memberships(session: SparkSession, at: str, direct: bool) -> DataFrame:
    """Returns rows of exporting.MEMBERSHIP, with one partition for each slice. Raises Unavailable."""
    from shoal_pipeline.bulk.cluster import fetch_map
    from shoal_pipeline.bulk.exporting import MEMBERSHIP, TARGET, exporter

    cluster = fetch_map(at)
    without = [name for name in cluster.slices if not cluster.address_of(name)]
    if without:
        raise Unavailable(
            f"slice {without[0]} has no leader now: try again once `shoal status` shows that it answers",
            subject=without[0],
        )
    targets = [(name, cluster.admin_address_of(name)) for name in cluster.slices]
    rows = session.sparkContext.parallelize(targets, len(targets))
    return session.createDataFrame(rows, TARGET).mapInArrow(exporter(direct), MEMBERSHIP)


def _shown(name: bytes) -> str:
    return bytes(name).decode("utf-8", "backslashreplace")
