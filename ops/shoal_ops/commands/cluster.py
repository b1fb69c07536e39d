"""`shoal up`: a local cluster until Ctrl-C or SIGTERM, with one merged log."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shoal_coordination.local_cluster import LocalCluster
from shoal_coordination.local_process import LocalProcess

_COLOURS = ("cyan", "magenta", "green", "blue", "yellow", "bright_cyan", "bright_magenta", "bright_green")


class MergedLog:
    """Lines of all processes on one terminal, each with its process's name in its colour. Plain where there is none."""

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
) -> None:
    """`admin`: host:port of the HTTP gateway, which is started too."""
    log = MergedLog(Console(highlight=False))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = LocalCluster(data, slices=slices, listen=listen, http=http, fresh=fresh, archive=archive, on_line=log)
    log("shoal", f"starting a cluster in {data}")
    starting = asyncio.ensure_future(cluster.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        return
    try:
        starting.result()
        log("shoal", f"ready, slices {', '.join(cluster.slices)}; clients connect to {cluster.redirector}")
        log("shoal", f"try: shoal status --at {cluster.redirector}; HTTP at http://{cluster.http}/v1/locate?key=room")
        log("shoal", f"logs are in {cluster.log_folder}; Ctrl-C stops it and keeps the data")
        gateway = await _start_gateway(admin, cluster, log) if admin else None
        await stop.wait()
        if gateway is not None:
            await gateway.stop()
        log("shoal", "stopping: nodes write their checkpoints")
    finally:
        stopping.cancel()
        await cluster.stop()
    if archive is not None:
        log("shoal", f"all that happened is archived in {archive}: shoal pipeline census {archive}")
    log("shoal", f"stopped; the data is kept in {data}")


async def _start_gateway(address: str, cluster: LocalCluster, log: MergedLog) -> LocalProcess:
    """Raises Unavailable with what it said last."""
    command = ["shoal_ops", "admin", "--json", "--listen", address, "--at", cluster.redirector]
    gateway = LocalProcess("admin", command, cluster.log_folder / "admin.log", log)
    ready = await gateway.start()
    log("shoal", f"page and HTTP API at http://{ready['http']}")
    return gateway
