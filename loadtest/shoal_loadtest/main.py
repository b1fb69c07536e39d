"""`python -m shoal_loadtest NAME`: parses arguments, runs benches one after the other, and prints the report."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import uvloop

from shoal_loadtest.bulk import bench_bulk
from shoal_loadtest.churn import bench_churn
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.fanout import bench_fanout
from shoal_loadtest.idle import bench_idle
from shoal_loadtest.latency import bench_latency
from shoal_loadtest.limits import QUEUES_DEFAULT, QUEUES_MAX, QUEUES_MIN, QUEUES_QUICK, SECONDS_MAX
from shoal_loadtest.neighbours import bench_neighbours
from shoal_loadtest.publish import bench_publish
from shoal_loadtest.report import Result, as_json, as_text, say
from shoal_loadtest.restart import bench_restart
from shoal_loadtest.setting import Setting
from shoal_loadtest.storm import bench_storm
from shoal_runtime.loops import Loop

BENCHES: dict[str, Callable[[Setting], Awaitable[Result]]] = {
    "churn": bench_churn,
    "publish": bench_publish,
    "fanout": bench_fanout,
    "restart": bench_restart,
    "idle": bench_idle,
    "latency": bench_latency,
    "neighbours": bench_neighbours,
    "storm": bench_storm,
    "bulk": bench_bulk,
}
NEED_MORE = {"bulk"}
"""Benches that are not part of `all`: they need Spark and Java."""
ALL = "all"
PLOT_FORMS = (".png", ".svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0, or 1 if a bench failed; argparse exits with 2 for bad arguments."""
    given = _arguments(arguments)
    queues = given.queues or (QUEUES_QUICK if given.quick else QUEUES_DEFAULT)
    setting = Setting(queues, given.quick, given.seconds, given.data, plot=given.plot)
    results: list[Result] = []
    failed = False
    for name in [one for one in BENCHES if one not in NEED_MORE] if given.name == ALL else [given.name]:
        try:
            result = uvloop.run(_run(name, setting), loop_factory=Loop)
        except (BenchFailed, OSError) as error:
            say(f"{name} failed: {error}")
            failed = True
            continue
        results.append(result)
        if not given.json:
            sys.stdout.write(as_text(result) + "\n")
            sys.stdout.flush()
    if given.json and results:
        sys.stdout.write(as_json(results))
    return 1 if failed else 0


async def _run(name: str, setting: Setting) -> Result:
    try:
        result = await BENCHES[name](setting)
    except BaseExceptionGroup as group:
        failures = group.subgroup(BenchFailed)
        if failures is None:
            raise
        raise BenchFailed("; ".join(sorted({str(error) for error in _leaves(failures)}))) from None
    return replace(result, command=_command(name, setting))


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _command(name: str, setting: Setting) -> str:
    words = ["shoal", "bench", name, "--queues", str(setting.queues)]
    words += ["--quick"] if setting.quick else []
    words += ["--seconds", f"{setting.seconds:g}"] if setting.seconds else []
    words += ["--plot", str(setting.plot)] if setting.plot else []
    return shlex.join(words)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="shoal bench", description="Benchmarks over gRPC with real processes.")
    parser.add_argument("name", choices=[*BENCHES, ALL])
    parser.add_argument("--queues", type=int, metavar="N", help=f"population; default {QUEUES_DEFAULT:,}")
    parser.add_argument("--quick", action="store_true", help=f"shorter runs, and {QUEUES_QUICK:,} queues")
    parser.add_argument("--json", action="store_true", help="print one object instead of tables")
    parser.add_argument(
        "--seconds", type=float, default=0.0, metavar="S", help="seconds of steady load; each benchmark has a default"
    )
    default = Path(tempfile.gettempdir()) / "shoal-loadtest"
    parser.add_argument(
        "--data", type=Path, default=default, metavar="DIR", help="folder in which populations are kept"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="storm: draw its course there (.png, .svg); needs matplotlib"
    )
    given = parser.parse_args(arguments)
    if given.queues is not None and not QUEUES_MIN <= given.queues <= QUEUES_MAX:
        parser.error(f"--queues is {given.queues}; it needs {QUEUES_MIN} to {QUEUES_MAX}")
    if given.plot is not None:
        _check_plot(parser, given.name, given.plot)
    if not 0 <= given.seconds <= SECONDS_MAX:
        parser.error(f"--seconds is {given.seconds}; the limit is {SECONDS_MAX:g}")
    return given


def _check_plot(parser: argparse.ArgumentParser, name: str, plot: Path) -> None:
    """Refuses a picture that could not be drawn, before a run of minutes. Exits with 2."""
    if name != "storm":
        parser.error("--plot is for storm alone")
    if plot.suffix not in PLOT_FORMS or not plot.absolute().parent.is_dir():
        parser.error(f"--plot is {plot}; it needs a file in a folder that exists, with an ending of {PLOT_FORMS}")
    if find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'shoal[spark]'")
