"""Runs the HTTP server of every process: uvicorn on the event loop that already runs, on a socket already bound.

The process handles signals itself. Not here: what is served, and its bounds (`HttpLimits` of each server's limits.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from shoal_runtime.http.connections import Connections
from shoal_runtime.http.limits import ANSWERS_BYTES_MAX, OPEN_FILES_SHARE, SEND_BUFFER_BYTES, HttpLimits
from shoal_runtime.http.protocol import Config, Protocol
from shoal_runtime.open_files import raise_open_files

_log = logging.getLogger(__name__)


class HttpServer(uvicorn.Server):
    """Serves HTTP. `address` is the real host:port. Serve with `run_until_stopped`, in a task; then `stop` it. Raises
    OSError if it cannot listen."""

    def __init__(self, address: str, bounds: HttpLimits) -> None:
        self.connections = Connections[Protocol](_connections_max(bounds.connections_max), bounds.idle_s)
        config = Config(
            _not_yet,
            self.connections,
            bounds,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            backlog=bounds.connections_max,
            timeout_keep_alive=bounds.idle_s,
            timeout_graceful_shutdown=int(bounds.stop_s),
            server_header=False,
        )
        super().__init__(config)
        self.serving = asyncio.Event()
        host, _, port = address.rpartition(":")
        try:
            self._listening = _listen(host.strip("[]"), int(port), bounds.connections_max)
        except (OSError, ValueError, OverflowError) as error:
            raise OSError(f"cannot listen on {address}: {error}") from None
        self.address = f"{host}:{self._listening.getsockname()[1]}"

    async def run_until_stopped(self, application: ASGIApp) -> None:
        """Serves an ASGI application."""
        self.config.app = application
        await self.serve(sockets=[self._listening])

    def has_room(self) -> bool:
        """Tells whether readers have taken enough of their answers, so that another large one may be made."""
        return self.connections.held_bytes < ANSWERS_BYTES_MAX

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

    async def on_tick(self, counter: int) -> bool:
        """Ends connections that waited too long. uvicorn calls this ten times a second, and counts the calls."""
        if counter % 10 == 0:
            for connection in self.connections.readers():
                connection.look()
        for connection in self.connections.late(asyncio.get_running_loop().time()):
            connection.end()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _connections_max(wanted: int) -> int:
    """Returns `wanted`, or fewer if the process may not open files for so many connections."""
    room = int(raise_open_files() * OPEN_FILES_SHARE)
    if room < wanted:
        _log.warning(
            "HTTP takes %d connections at a time, not %d, as this process may open no more files: raise ulimit -n for"
            " more",
            *(room, wanted),
        )
    return min(room, wanted)


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # [::] means every address of this machine, as it does for gRPC.
    both = host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)
    # Connections inherit this.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listening


async def _not_yet(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is served before run_until_stopped")
