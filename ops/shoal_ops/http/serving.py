"""Runs the gateway in this process until it is asked to stop: the connection, the application, the server, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shoal_contract.tasks import Tasks
from shoal_ops.http import limits
from shoal_ops.http.application import new_application
from shoal_ops.http.gateway import open_gateway
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.server import HttpServer
from shoal_ops.http.token import Token, check_start


@dataclass(frozen=True, slots=True)
class Settings:
    """`listen`: host:port. `redirectors`: each host:port. `token`: "" for none, only on loopback."""

    listen: str
    redirectors: tuple[str, ...]
    token: str


async def serve(settings: Settings, stop: asyncio.Event, on_ready: Callable[[str], None]) -> None:
    """Until `stop`; calls `on_ready(host:port)` once it answers.

    Raises Unauthenticated (a token is needed), OSError (cannot listen), Unavailable (no redirector answers).
    """
    check_start(settings.listen, settings.token)
    http = HttpServer(settings.listen)
    async with (
        Tasks("admin", lambda name, error: stop.set()) as tasks,
        open_gateway(list(settings.redirectors), Metrics(), limits.DEADLINE_S, tasks) as gateway,
    ):
        application = new_application(gateway, Token(settings.token))
        serving = tasks.start("http", http.run_until_stopped(application))
        ready = tasks.start("ready", http.serving.wait())
        await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
        on_ready(http.address)
        await stop.wait()
        gateway.stop()
        http.stop()
        await asyncio.wait([serving], timeout=2 * limits.STOP_S)
