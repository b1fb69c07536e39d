"""Which jobs there are; arguments in, one job run in one Spark session, exit code out.

A job is a module with
    SUMMARY: str                                      one line of help
    add_arguments(parser) -> None                     without importing pyspark, so that help is quick
    run(arguments, session, say) -> int               the exit code; raises ShoalErrors

Belongs here: registration and the environment, which nobody else reads. Not here: what a job does, how a session is set
up (session.py), what an error means to the shell (failure.py).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from shoal_pipeline.failure import exit_code, typed
from shoal_pipeline.progress import Say, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS: dict[str, str] = {
    "census": "shoal_pipeline.census.job",
    "export": "shoal_pipeline.bulk.export",
    "load": "shoal_pipeline.bulk.load",
}
"""Name -> module. Imported only when it is called, or for help."""


class Job(Protocol):
    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace, session: SparkSession, say: Say) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes as the `shoal` command's; argparse exits with 2 for bad arguments."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = _parser(given).parse_args(given)
    job = cast(Job, import_module(JOBS[parsed.job]))
    from shoal_pipeline.session import open_session

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started us and knows the master
    say(f"starting Spark for {parsed.job}")
    session = open_session(f"shoal {parsed.job}", None if submitted else parsed.master)
    try:
        return job.run(parsed, session, say)
    except Exception as error:
        known = typed(error)
        if known is None:
            raise
        say(str(known))
        return exit_code(known)
    except KeyboardInterrupt:
        return 130
    finally:
        session.stop()


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
        job.add_arguments(one)
    return parser
