"""`shoal pipeline census ARCHIVE`: figures on stdout, tables as Parquet, one page as HTML."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from shoal_contract.errors import BadCall
from shoal_pipeline.census.interval import parse_interval
from shoal_pipeline.progress import Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal_pipeline.census.outcome import Census

SUMMARY = "The load an archive tells of, interval by interval: queues, keys, memberships, churn, messages, skew."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="folder that slice nodes archive to (--archive)")
    parser.add_argument(
        "--interval", default="", metavar="LENGTH", help="as 90s, 10m, 1h, 7d; left out: one that gives about 100"
    )
    parser.add_argument("--out", metavar="DIR", help="tables as Parquet, in folders of this one; replaced")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="one page with plots; replaced")
    parser.add_argument(
        "--skip-damage", action="store_true", help="leave out damaged records and say how many, instead of failing"
    )
    parser.add_argument("--json", action="store_true", help="every figure on stdout, as one object")


def run(arguments: argparse.Namespace, session: SparkSession, say: Say) -> int:
    """Raises BadCall, Corrupt."""
    from shoal_pipeline.census.compute import take_census
    from shoal_pipeline.census.requests import read_rows
    from shoal_pipeline.source import register

    interval_ms = parse_interval(arguments.interval) if arguments.interval else None
    if arguments.report is not None and not arguments.report.parent.is_dir():
        raise BadCall(f"{arguments.report.parent} is not a folder", subject=str(arguments.report))
    register(session)
    options = {"damage": "skip" if arguments.skip_damage else "fail"}
    rows = read_rows(session, arguments.archive, options)
    census = take_census(rows, arguments.archive, interval_ms, say)
    if arguments.out is not None:
        from shoal_pipeline.census.tables import write_tables

        write_tables(session, census, arguments.out)
        say(f"tables are in {arguments.out}")
    if arguments.report is not None:
        from shoal_pipeline.census.report import report_page

        arguments.report.write_text(report_page(census), encoding="utf-8")
        say(f"the report is {arguments.report}")
    sys.stdout.write(json.dumps(asdict(census)) + "\n" if arguments.json else summary(census))
    return 0


def summary(census: Census) -> str:
    """A few lines for a terminal."""
    from shoal_pipeline.census.load_table import load_table

    rows = load_table(census)
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}} {'fullest':>12} {'mean':>12} {'highest':>12}"]
    lines += [f"{row.name:{width}} {row.fullest:>12} {row.mean:>12} {row.highest:>12}" for row in rows]
    return "\n".join([*lines, *(f"note: {note}" for note in census.notes)]) + "\n"
