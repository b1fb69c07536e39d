"""Lists the jobs, parses arguments, runs one job in one Spark session, and returns its exit code.

A job is a module with
    SUMMARY: str                                      one line of help
    add_arguments(parser) -> None                     without importing pyspark, so that help is quick
    check(arguments, say) -> int | None               checks what needs no Spark, which takes seconds to start; returns
                                                      an exit code where nothing else is to be done
    run(arguments, session, say) -> int               returns the exit code
The last two raise ShoalError.

Belongs here: registration and the environment, which no other module reads. Not here: what a job does, how a session is
set up (session.py), whether Spark can run at all (needs.py), what an error means to the shell (failure.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from traceback import print_exception
from typing import TYPE_CHECKING, Protocol, cast

from shoal_contract.addresses import redirector_addresses
from shoal_contract.errors import Malformed
from shoal_pipeline.arguments import AT_DEFAULT, AT_VARIABLE
from shoal_pipeline.failure import exit_code, typed
from shoal_pipeline.needs import check_java, check_libraries
from shoal_pipeline.progress import Say, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: dict[str, str] = {
    "census": "shoal_pipeline.census.job",
    "export": "shoal_pipeline.bulk.export",
    "load": "shoal_pipeline.bulk.load",
}
"""The module of each job, by name. It is imported only when the job is called, or for help."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit. Then spark-submit knows the master, and its file systems may be others than this machine's."""


class Job(Protocol):
    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def check(self, arguments: argparse.Namespace, say: Say) -> int | None: ...

    def run(self, arguments: argparse.Namespace, session: SparkSession, say: Say) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one job. Returns exit codes like the `shoal` command's; argparse exits with 2 for bad arguments."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = _parsed(_parser(given), given, os.environ)
    try:
        return _run(parsed)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        known = typed(error)
        if known is None:
            raise
        if parsed.traceback:
            print_exception(error)
        say(str(known))
        return exit_code(known)


def _run(parsed: argparse.Namespace) -> int:
    check_libraries()
    job = cast(Job, import_module(JOBS[parsed.job]))
    submitted = _SUBMITTED in os.environ
    if not submitted:
        ended = job.check(parsed, say)
        if ended is not None:
            return ended
        check_java(os.environ)
    from shoal_pipeline.session import open_session

    say(f"starting Spark for {parsed.job}")
    master = None if submitted else parsed.master
    session = open_session(f"shoal {parsed.job}", master, memory=parsed.memory, quiet=not parsed.traceback)
    try:
        return job.run(parsed, session, say)
    finally:
        session.stop()


def _parsed(
    parser: argparse.ArgumentParser, given: Sequence[str], environment: Mapping[str, str]
) -> argparse.Namespace:
    parsed = parser.parse_args(given)
    if "at" in parsed:
        try:
            parsed.at = ",".join(redirector_addresses(parsed.at or environment.get(AT_VARIABLE) or AT_DEFAULT))
        except Malformed as error:
            parser.error(f"--at: {error}")
    return parsed


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="shoal pipeline", description="Spark jobs of Shoal.")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    for name, module in JOBS.items():
        if given and given[0] in JOBS and given[0] != name:
            continue
        job = cast(Job, import_module(module))
        one = jobs.add_parser(name, help=job.SUMMARY, description=job.SUMMARY)
        one.add_argument(
            "--master", default="local[2]", help="where Spark runs; spark-submit's wins (default %(default)s)"
        )
        one.add_argument(
            "--memory",
            default="",
            metavar="SIZE",
            help="memory of Spark's JVM on one machine: 3g, or 50%% of what the machine or container has (default 2g)",
        )
        one.add_argument("--traceback", action="store_true", help="after an error, print all that Python and Spark say")
        job.add_arguments(one)
    return parser
