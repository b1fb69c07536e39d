"""`python -m shoal_loadtest.residents`: starts a fresh cluster, runs Locust against it, and exits with the verdict.

Belongs here: arguments, processes in their order, the removal of everything afterwards. Not here: the load
(generator.py).
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.residents import limits
from shoal_loadtest.residents.core.shapes import SHAPES
from shoal_loadtest.residents.setting import Setting
from shoal_loadtest.residents.summary import read_summary, told

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
INTERRUPTED = 130
DESCRIPTION = (
    "The evaluation's residents on a fresh cluster, every message checked. Exit code: 0 all levels kept, 1 not."
)
_READY = re.compile(rb"clients connect to (\S+)")


@dataclass(frozen=True)
class Cluster:
    """Names the cluster under load. `pid` 0: it was not started here."""

    redirector: str
    pid: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 all levels kept; 1 not, or the run broke; 2 bad arguments (argparse); 130
    interrupted."""
    given = _arguments(arguments)
    report: Path = given.report.resolve()
    report.mkdir(parents=True, exist_ok=True)
    for old in ("summary.json", "report.html", "locust.html"):
        (report / old).unlink(missing_ok=True)
    try:
        with _cluster(given.at, given.slices, report) as cluster:
            code = _locust(_setting(given, report, cluster), report)
        summary = read_summary(report / "summary.json")
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; what there is of a report is in {report}\n")
        return INTERRUPTED
    except (BenchFailed, OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"load test failed: {error}\n")
        return 1
    sys.stdout.write(told(summary) + f"report: {report / 'report.html'}\n")
    return 0 if code == 0 and summary.passed else 1


def _setting(given: argparse.Namespace, report: Path, cluster: Cluster) -> Setting:
    return Setting(
        redirector=cluster.redirector,
        cluster_pid=cluster.pid,
        report=str(report),
        scale=given.scale,
        shape=given.shape,
        duration_s=given.duration,
        generators=given.generators,
        slices=given.slices,
        consumed_max=given.consumed,
        seed=given.seed,
        pace=given.pace,
        slack=given.slack,
        lost_after_s=given.lost_after,
        fault=given.fault,
    )


@contextmanager
def _cluster(at: str, slices: int, report: Path) -> Iterator[Cluster]:
    """Yields the cluster `at`, or a fresh one; a fresh cluster ends with the context, with its temporary folder. Raises
    BenchFailed."""
    if at:
        yield Cluster(at)
        return
    folder = Path(tempfile.mkdtemp(prefix="shoal-loadtest-"))
    log_path = report / "cluster.log"
    command = [sys.executable, "-m", "shoal_ops", "up", "--fresh", "--data", str(folder / "cluster")]
    command += ["--slices", str(slices), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield Cluster(_ready(process, log_path), process.pid)
        if process.poll() is not None:
            raise BenchFailed(f"the cluster ended with code {process.returncode} before the run did; see {log_path}")
    finally:
        _end(process, signal.SIGINT, limits.CLUSTER_STOP_S_MAX)
        shutil.rmtree(folder, ignore_errors=True)


def _ready(process: subprocess.Popen[bytes], log: Path) -> str:
    """Returns the redirector's address, from the line that says it is ready. Raises BenchFailed."""
    until_s = time.monotonic() + limits.CLUSTER_READY_S_MAX
    while process.poll() is None:
        if found := _READY.search(log.read_bytes()):
            return found[1].decode()
        if time.monotonic() > until_s:
            raise BenchFailed(f"the cluster was not ready within {limits.CLUSTER_READY_S_MAX} s; see {log}")
        time.sleep(limits.READY_POLL_S)
    raise BenchFailed(f"the cluster ended with code {process.returncode} at its start; see {log}")


def _locust(setting: Setting, report: Path) -> int:
    """Runs Locust. Returns its exit code. Raises BenchFailed if it does not end."""
    command = [sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"]
    command += ["--html", str(report / "locust.html"), "--setting", str(setting.write())]
    log_path = report / "locust.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=report)
    seconds = limits.WARM_UP_S_MAX + setting.duration_s + limits.LOCUST_END_S_MAX
    try:
        _say_progress(process, log_path, seconds)
    finally:
        code = _end(process, signal.SIGTERM, limits.LOCUST_STOP_S_MAX)
    if not (report / "summary.json").is_file():
        raise BenchFailed(f"Locust ended with code {code} and no summary; see {log_path}")
    return code


def _say_progress(process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    """Passes on what Locust's log says about the run, line by line, until it ends. Raises BenchFailed."""
    until_s = time.monotonic() + seconds
    with log.open(encoding="utf-8", errors="replace") as lines:
        while True:
            ended = process.poll() is not None
            _pass_on(lines)
            if ended:
                return
            if time.monotonic() > until_s:
                raise BenchFailed(f"Locust did not end within {seconds:g} s; see {log}")
            time.sleep(limits.READY_POLL_S)


def _pass_on(lines: IO[str]) -> None:
    for line in lines:
        if "shoal:" in line:
            sys.stderr.write(line[line.index("shoal:") :])
            sys.stderr.flush()


def _end(process: subprocess.Popen[bytes], number: signal.Signals, seconds: float) -> int:
    if process.poll() is None:
        process.send_signal(number)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m shoal_loadtest.residents", description=DESCRIPTION)
    parser.add_argument(
        "--scale",
        type=_within(limits.SCALE_MIN, limits.SCALE_MAX),
        default=4.0,
        metavar="X",
        help="times the evaluation's load; 4 is the goal",
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="steady")
    seconds = _within(limits.DURATION_S_MIN, limits.DURATION_S_MAX)
    parser.add_argument(
        "--duration",
        type=seconds,
        default=limits.DURATION_S_DEFAULT,
        metavar="S",
        help="seconds to measure, after the warm-up",
    )
    parser.add_argument(
        "--report", type=Path, default=Path("build/loadtest"), metavar="DIR", help="folder for the report and the logs"
    )
    parser.add_argument(
        "--at", default="", metavar="HOST:PORT", help="a running cluster's redirector; else a fresh one"
    )
    parser.add_argument("--slices", type=int, default=limits.SLICES_DEFAULT, help="number of slices of a fresh cluster")
    parser.add_argument("--generators", type=int, default=1, metavar="N", help="processes that make the load")
    parser.add_argument(
        "--consumed", type=int, default=limits.CONSUMED_QUEUES_MAX, metavar="N", help="consume at most so many queues"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=_within(0.1, 1e3), default=1.0, metavar="X", help="factor for all rates")
    parser.add_argument(
        "--slack", type=_within(1, 1e4), default=1.0, metavar="X", help="factor for the allowed latencies"
    )
    parser.add_argument(
        "--lost-after",
        type=_within(1, 600),
        default=limits.LOST_AFTER_S,
        metavar="S",
        help="seconds after which a message counts as lost",
    )
    parser.add_argument(
        "--fault", choices=["none", "drop", "double"], default="none", help="cause this fault, to show that it is found"
    )
    given = parser.parse_args(arguments)
    if not 1 <= given.generators <= limits.GENERATORS_MAX:
        parser.error(f"--generators is {given.generators}; it needs 1 to {limits.GENERATORS_MAX}")
    if given.consumed < given.generators:
        parser.error(f"--consumed is {given.consumed}; each of {given.generators} generators needs one")
    if given.slices < 1:
        parser.error(f"--slices is {given.slices}; it needs 1 or more")
    return given


class _within:  # noqa: N801 - reads as the argument's type in argparse's messages
    """Reads a number from an argument, for argparse, and refuses one that is not within a range."""

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def __call__(self, text: str) -> float:
        if not self._low <= (value := float(text)) <= self._high:
            raise argparse.ArgumentTypeError(f"{text}; it needs {self._low:g} to {self._high:g}")
        return value
