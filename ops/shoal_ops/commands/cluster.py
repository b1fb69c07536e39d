"""`shoal up`: runs a local cluster until Ctrl-C or SIGTERM, with one merged log."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shoal_contract.data_folder import has_data
from shoal_contract.errors import OutcomeUnknown, ShoalError
from shoal_local.archived import Lacks
from shoal_local.cluster import LocalCluster
from shoal_local.commands import ACCEPT_EMPTY
from shoal_local.files import DISK_FULL
from shoal_runtime.standard_streams import ReaderGone
from shoal_runtime.tasks import run_until

_COLOURS = ("cyan", "magenta", "green", "blue", "yellow", "bright_cyan", "bright_magenta", "bright_green")


class MergedLog:
    """Prints the lines of all processes on one terminal, each with its process's name in its colour. Where there is no
    terminal, the lines are plain. `on_unread`: called, in place of ending the process, where nothing reads them, or the
    terminal is gone. While a disk is full, lines are lost."""

    def __init__(self, console: Console, on_unread: Callable[[], None]) -> None:
        self._console = console
        self._on_unread = on_unread
        self.unread = False
        self._colours: dict[str, str] = {"shoal": "bold"}

    def __call__(self, name: str, line: str) -> None:
        colour = self._colours.setdefault(name, _COLOURS[(len(self._colours) - 1) % len(_COLOURS)])
        text = Text(f"{name:>10} ", style=colour)
        text.append(line, style="bold" if name == "shoal" else "default")
        try:
            self._console.print(text, soft_wrap=True)
        except (ReaderGone, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                return  # The line is lost; later ones may find room.
            self.unread = True
            self._on_unread()


async def run_cluster(
    make: Callable[..., LocalCluster], data: Path, archive: Path | None = None, admin: str | None = None
) -> None:
    """Runs a local cluster until Ctrl-C or SIGTERM. `make`: makes the cluster, given `on_line`. `admin`: host:port of
    the HTTP gateway, which is started too. Where nothing reads the log any more, the cluster stops as at Ctrl-C, and
    ReaderGone is raised."""
    if admin is not None:
        _check_admin(admin)
    stop = asyncio.Event()
    merged = MergedLog(Console(highlight=False), stop.set)
    await _run_until(stop, make, data, archive, merged)
    if merged.unread:
        raise ReaderGone


async def _run_until(
    stop: asyncio.Event, make: Callable[..., LocalCluster], data: Path, archive: Path | None, log: MergedLog
) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = make(on_line=log)
    log("shoal", f"starting a cluster in {data}")
    if not await run_until(stop, _started(cluster, data)):
        log("shoal", "stopped before it was ready")
        return
    held = [one for one in cluster.slices if has_data(data / one)]
    try:
        _say_ready(cluster, data)
        await stop.wait()
        cluster.say("stopping: nodes write their checkpoints")
    finally:
        await cluster.stop()
    if archive is not None:
        log("shoal", told_archive(archive, {one: cluster.archived(one) for one in cluster.slices}))
    log("shoal", f"stopped; {told_data(data, held)}")


def told_data(data: Path, held: Sequence[str]) -> str:
    """Returns what a stop says of the data. `held`: the slices that had data once the cluster was ready."""
    gone = [one for one in held if not has_data(data / one)]
    return f"the data of {', '.join(gone)} was removed from {data}" if gone else f"the data is kept in {data}"


def _check_admin(address: str) -> None:
    """Raises, before anything is started, what the gateway itself would raise at its start."""
    # Imported here, so that a cluster without a gateway does not load the gateway's modules.
    from shoal_ops.http.token import TOKEN_VARIABLE, check_start, token_from

    ways = f"{TOKEN_VARIABLE} in the environment, or `shoal admin --token-file FILE` beside a cluster without --admin"
    check_start(address, token_from(None, os.environ.get(TOKEN_VARIABLE)), ways)


async def _started(cluster: LocalCluster, data: Path) -> bool:
    try:
        await cluster.start()
    except OutcomeUnknown as error:
        # From a call to a cluster, this error means that the call may have taken effect. A start that failed has not.
        raise ShoalError(f"{error.message}{_way_on(data, error)}") from error
    return True


def _way_on(data: Path, problem: ShoalError) -> str:
    """Returns the command for what a slice node's error advises, where its argument is given to `shoal up`."""
    if ACCEPT_EMPTY not in problem.message:
        return ""
    return f". In this cluster that is: stop it, then `shoal up --data {data} {ACCEPT_EMPTY} {problem.subject}`"


def told_archive(archive: Path, found: Mapping[str, int | Lacks]) -> str:
    """Returns what a stop says of the archive. `found`: of each slice, from which LSN on it has all records, or why it
    has not."""
    in_journal = ", ".join(one for one, what in found.items() if what is Lacks.IN_JOURNAL)
    elsewhere = ", ".join(one for one, what in found.items() if what is Lacks.ELSEWHERE)
    census = f"shoal pipeline census {archive}"
    if not in_journal and not elsewhere:
        begins = [f"of {one} from LSN {what} on" for one, what in found.items() if what != 1]
        if not begins:
            return f"all that happened is archived in {archive}: {census}"
        return f"archived in {archive} is what happened, but {', '.join(begins)}; older records are not there: {census}"
    told = f"NOT all that happened is archived in {archive}"
    if in_journal:
        told += (
            f": the last changes of {in_journal} are only in the journal. They are archived at the next clean stop with"
            " this --archive; if a slice says above that the archive has other records than its journal, or ends with"
            " what was not archived by it, with another --archive"
        )
    if elsewhere:
        told += (
            f"{'. And it' if in_journal else ': it'} lacks what happened of {elsewhere} before, has records of another"
            " cluster or life, or could not be looked at (a slice says above which), and no journal has them any more:"
            " look for the archive that was given before"
        )
    return told


def _say_ready(cluster: LocalCluster, data: Path) -> None:
    serving = [name for name in cluster.slices if name not in cluster.missing]
    noun = "slice" if len(serving) == 1 else "slices"
    cluster.say(f"ready, {noun} {', '.join(serving)}; clients connect to {cluster.redirector}")
    for name, problem in cluster.missing.items():
        # A slice without data has nothing to check.
        checked = f" `shoal check {data / name}` says whether its files are sound;" if has_data(data / name) else ""
        cluster.say(
            f"{name} is MISSING: {problem}{_way_on(data, problem)}. What it holds cannot be reached until it starts; it"
            f" is tried again and again.{checked} its log is {cluster.log_folder / name}.log"
        )
    cluster.say(f"try: shoal status --at {cluster.redirector}; HTTP at http://{cluster.http}/v1/locate?key=room")
    if cluster.admin:
        cluster.say(f"page and HTTP API at http://{cluster.admin}")
    cluster.say(f"logs are in {cluster.log_folder}; Ctrl-C stops it and keeps the data")
