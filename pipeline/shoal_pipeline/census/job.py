"""`shoal pipeline census ARCHIVE`: prints figures, writes tables as Parquet and one page as HTML."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from shoal_contract.errors import BadCall
from shoal_pipeline.archive.folder import NothingYet, list_spans
from shoal_pipeline.census.interval import parse_interval
from shoal_pipeline.locations import folder_of
from shoal_pipeline.outputs import Outputs, check_replaceable, check_report, names_here
from shoal_pipeline.progress import Say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal_pipeline.census.outcome import Census

SUMMARY = "The load an archive tells of, interval by interval: queues, keys, memberships, churn, messages, skew."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("archive", metavar="ARCHIVE", help="folder that slice nodes archive to (--archive)")
    parser.add_argument(
        "--interval",
        default="",
        metavar="LENGTH",
        help="such as 90s, 10m, 1h, 7d; default: so that there are about 100",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write tables as Parquet, in folders of this one; those of an earlier census are replaced",
    )
    parser.add_argument(
        "--report", metavar="FILE.html", help="write one page with plots; only an earlier report is replaced"
    )
    parser.add_argument(
        "--dated",
        action="store_true",
        help="replace %%Y-%%m-%%d and the like in --out and --report by the present time in UTC",
    )
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if the archive holds nothing yet")
    parser.add_argument(
        "--skip-damage", action="store_true", help="leave out damaged records and say how many, instead of failing"
    )
    parser.add_argument("--json", action="store_true", help="print every figure as one object")


def check(arguments: argparse.Namespace, say: Say) -> int | None:
    """Checks archive and outputs. Returns 0 where there is nothing to count and that is no error. Raises BadCall,
    Conflict, Malformed."""
    archive = folder_of(arguments.archive, "archive")
    if not archive.is_dir():
        raise BadCall(f"archive {archive} is not a folder", subject=str(archive))
    _interval_ms(arguments)
    if arguments.out is not None:
        out = _named(arguments.out, arguments)
        check_replaceable(out, "census", names_here(out), "")
    if arguments.report is not None:
        _report_file(arguments)
    return None if list_spans(archive) else _nothing(arguments, say)


def run(arguments: argparse.Namespace, session: SparkSession, say: Say) -> int:
    """Takes the census. Returns the exit code. Raises BadCall, Conflict, Corrupt."""
    from shoal_pipeline.census.compute import take_census
    from shoal_pipeline.census.requests import read_rows
    from shoal_pipeline.source import register

    register(session)
    options = {"damage": "skip" if arguments.skip_damage else "fail"}
    rows = read_rows(session, arguments.archive, options)
    try:
        census = take_census(rows, arguments.archive, _interval_ms(arguments), say)
    except NothingYet:
        return _nothing(arguments, say)
    _write(census, arguments, session, say)
    sys.stdout.write(json.dumps(asdict(census)) + "\n" if arguments.json else summary(census))
    return 0


def _nothing(arguments: argparse.Namespace, say: Say) -> int:
    """Returns the exit code where the archive has no records. Raises NothingYet unless that is allowed."""
    if not arguments.allow_empty:
        raise NothingYet
    say(f"nothing to count: {NothingYet()}")
    return 0


def _write(census: Census, arguments: argparse.Namespace, session: SparkSession, say: Say) -> None:
    if arguments.out is not None:
        from shoal_pipeline.census.tables import write_tables

        out = _named(arguments.out, arguments)
        Outputs(session).write(out, "census", "", lambda folder: write_tables(session, census, folder))
        say(f"tables are in {out}")
    if arguments.report is not None:
        from shoal_pipeline.census.report import report_page

        report = _report_file(arguments)
        beside = report.with_name(f".{report.name}.new")
        beside.write_text(report_page(census), encoding="utf-8")
        beside.replace(report)
        say(f"the report is {report}")


def _interval_ms(arguments: argparse.Namespace) -> int | None:
    return parse_interval(arguments.interval) if arguments.interval else None


def _report_file(arguments: argparse.Namespace) -> Path:
    """Returns the file that the report goes to. Raises BadCall, Conflict."""
    report = Path(_named(arguments.report, arguments))
    if not report.parent.is_dir():
        raise BadCall(f"{report.parent} is not a folder", subject=str(report))
    check_report(report)
    return report


def _named(path: str, arguments: argparse.Namespace) -> str:
    return datetime.now(UTC).strftime(path) if arguments.dated else path


def summary(census: Census) -> str:
    """Returns a few lines for a terminal."""
    from shoal_pipeline.census.load_table import load_table

    rows = load_table(census)
    width = max(len(row.name) for row in rows)
    lines = [f"{'':{width}} {'fullest':>12} {'mean':>12} {'highest':>12}"]
    lines += [f"{row.name:{width}} {row.fullest:>12} {row.mean:>12} {row.highest:>12}" for row in rows]
    return "\n".join([*lines, *(f"note: {note}" for note in census.notes)]) + "\n"
