"""uvicorn on the event loop that already runs, on a socket already bound; signals stay with the process.

For the servers' HTTP. Needs uvicorn (extra `server`), so the client never imports it. Not here: what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """`requests_max`: requests and connections at a time; more are answered 503. `head_bytes_max`: request line and
    headers. `idle_s`: an idle connection is closed. `stop_s`: what runs at the end may take so long."""

    requests_max: int
    head_bytes_max: int
    idle_s: int
    stop_s: float


class HttpServer(uvicorn.Server):
    """`address` is the real host:port. Serve with `run_until_stopped`, in a task; then `stop` it. Raises OSError."""

    def __init__(self, application: Starlette, address: str, limits: HttpLimits) -> None:
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            limit_concurrency=limits.requests_max,
            h11_max_incomplete_event_size=limits.head_bytes_max,
            timeout_keep_alive=limits.idle_s,
            timeout_graceful_shutdown=int(limits.stop_s),
            server_header=False,
        )
        super().__init__(config)
        self.serving = asyncio.Event()
        host, _, port = address.rpartition(":")
        try:
            self._listening = socket.create_server((host.strip("[]"), int(port)), backlog=limits.requests_max)
        except (OSError, ValueError, OverflowError) as error:
            raise OSError(f"cannot listen on {address}: {error}") from None
        self.address = f"{host}:{self._listening.getsockname()[1]}"

    async def run_until_stopped(self) -> None:
        await self.serve(sockets=[self._listening])

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
