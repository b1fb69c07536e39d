"""`shoal up`: runs a local cluster until Ctrl-C or SIGTERM, with one merged log."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shoal_contract.errors import OutcomeUnknown, ShoalError
from shoal_local.cluster import LocalCluster
from shoal_runtime.tasks import run_until

_COLOURS = ("cyan", "magenta", "green", "blue", "yellow", "bright_cyan", "bright_magenta", "bright_green")


class MergedLog:
    """Prints the lines of all processes on one terminal, each with its process's name in its colour. Where there is no
    terminal, the lines are plain."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._colours: dict[str, str] = {"shoal": "bold"}

    def __call__(self, name: str, line: str) -> None:
        colour = self._colours.setdefault(name, _COLOURS[(len(self._colours) - 1) % len(_COLOURS)])
        text = Text(f"{name:>10} ", style=colour)
        text.append(line, style="bold" if name == "shoal" else "default")
        self._console.print(text, soft_wrap=True)


async def run_cluster(
    slices: int | None,
    data: Path,
    listen: str,
    http: str,
    fresh: bool,
    archive: Path | None = None,
    admin: str | None = None,
    etcd: Path | None = None,
) -> None:
    """Runs a local cluster until Ctrl-C or SIGTERM. `admin`: host:port of the HTTP gateway, which is started too.
    `etcd`: its program."""
    if admin is not None:
        _check_admin(admin)
    log = MergedLog(Console(highlight=False))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = LocalCluster(
        data, slices=slices, listen=listen, http=http, admin=admin or "", fresh=fresh, archive=archive, etcd=etcd,
        partly=True, on_line=log,
    )  # fmt: skip
    log("shoal", f"starting a cluster in {data}")
    if not await run_until(stop, _started(cluster)):
        log("shoal", "stopped before it was ready")
        return
    try:
        _say_ready(cluster, data)
        await stop.wait()
        cluster.say("stopping: nodes write their checkpoints")
    finally:
        await cluster.stop()
    if archive is not None:
        log("shoal", f"all that happened is archived in {archive}: shoal pipeline census {archive}")
    log("shoal", f"stopped; the data is kept in {data}")


def _check_admin(address: str) -> None:
    """Raises, before anything is started, what the gateway itself would raise at its start."""
    # Imported here, so that a cluster without a gateway does not load the gateway's modules.
    from shoal_ops.http.token import TOKEN_VARIABLE, check_start, token_from

    check_start(address, token_from(None, os.environ.get(TOKEN_VARIABLE)))


async def _started(cluster: LocalCluster) -> bool:
    try:
        await cluster.start()
    except OutcomeUnknown as error:
        # From a call to a cluster, this error means that the call may have taken effect. A start that failed has not.
        raise ShoalError(error.message) from error
    return True


def _say_ready(cluster: LocalCluster, data: Path) -> None:
    serving = [name for name in cluster.slices if name not in cluster.missing]
    noun = "slice" if len(serving) == 1 else "slices"
    cluster.say(f"ready, {noun} {', '.join(serving)}; clients connect to {cluster.redirector}")
    for name, problem in cluster.missing.items():
        cluster.say(
            f"{name} is MISSING: {problem}. What it holds cannot be reached until it starts; it is tried again and"
            f" again. `shoal check {data / name}` says whether its files are sound; its log is"
            f" {cluster.log_folder / name}.log"
        )
    cluster.say(f"try: shoal status --at {cluster.redirector}; HTTP at http://{cluster.http}/v1/locate?key=room")
    if cluster.admin:
        cluster.say(f"page and HTTP API at http://{cluster.admin}")
    cluster.say(f"logs are in {cluster.log_folder}; Ctrl-C stops it and keeps the data")
