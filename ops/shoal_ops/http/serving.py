"""Runs the gateway in this process until it is asked to stop: connection, application and servers, in order."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal_ops.http import limits
from shoal_ops.http.application import new_application
from shoal_ops.http.gateway import open_gateway
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.metrics_port import new_metrics_application
from shoal_ops.http.token import Token, check_start
from shoal_runtime.http.guard import guarded
from shoal_runtime.http.server import HttpServer
from shoal_runtime.stopping import Stopping
from shoal_runtime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds the settings of the gateway. `listen`: host:port. `redirectors`: each host:port. `metrics`: host:port of
    health and figures, "" for no port of their own."""

    listen: str
    redirectors: tuple[str, ...]
    token: Token = field(repr=False)
    metrics: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """Names the addresses at which the gateway listens, host:port. `metrics` may be ""."""

    http: str
    metrics: str


async def serve(settings: Settings, stop: Stopping, on_ready: Callable[[Ready], None]) -> None:
    """Serves until `stop`; calls `on_ready` once the gateway answers.

    Raises Unauthenticated (a token is needed), OSError (cannot listen), Unavailable (no redirector answers).
    """
    check_start(settings.listen, settings.token)
    main = HttpServer(settings.listen, limits.HTTP)
    side = HttpServer(settings.metrics, limits.METRICS_HTTP) if settings.metrics else None
    servers = [main] if side is None else [main, side]
    async with (
        Tasks("admin", lambda name, error: stop.set()) as tasks,
        open_gateway(list(settings.redirectors), Metrics(), limits.DEADLINE_S, tasks) as gateway,
    ):
        gateway.is_leaving = lambda: stop.asked
        gate = new_application(gateway, settings.token)
        gateway.has_room = main.has_room
        _be_fair()
        gateway.metrics.watch("shoal_admin_connections", "HTTP connections open now.", lambda: len(main.connections))
        gateway.metrics.watch("shoal_admin_body_bytes", "Bodies under way.", lambda: gate.guard.bodies.held_bytes)
        gateway.metrics.watch("shoal_admin_unread_bytes", "Unread answers.", lambda: main.connections.held_bytes)
        serving = [tasks.start("http", main.run_until_stopped(gate))]
        if side is not None:
            application = guarded(
                new_metrics_application(gateway), settings.metrics, limits.METRICS_HTTP, gateway.is_leaving
            )
            serving.append(tasks.start("metrics", side.run_until_stopped(application)))
        tasks.start("ready", _say_ready(main, side, on_ready))
        await stop.wait()
        gateway.stop()
        for server in servers:
            server.stop()
        await asyncio.wait(serving, timeout=2 * limits.STOP_S)


def _be_fair() -> None:
    """Sets the interpreter for serving: the loop gets its turn soon beside the thread of large bodies, and the garbage
    collector need not check again what is loaded so far, which takes 30 ms and more. A long number takes time in the
    square of its digits, in which nothing else runs: so JSON may have none."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(limits.SWITCH_S)
    sys.set_int_max_str_digits(limits.DIGITS_MAX)


async def _say_ready(main: HttpServer, side: HttpServer | None, on_ready: Callable[[Ready], None]) -> None:
    await main.serving.wait()
    if side is not None:
        await side.serving.wait()
    on_ready(Ready(main.address, side.address if side is not None else ""))
