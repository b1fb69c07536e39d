"""uvicorn on the event loop that already runs, on a socket already bound; signals stay with the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.applications import Starlette

from shoal_redirector import limits


class HttpServer(uvicorn.Server):
    """`address` is the real host:port. Serve with `run`, in a task; cancel or `stop` it. Raises OSError."""

    def __init__(self, application: Starlette, address: str) -> None:
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            limit_concurrency=limits.HTTP_REQUESTS_MAX,
            h11_max_incomplete_event_size=limits.HTTP_HEAD_BYTES_MAX,
            timeout_keep_alive=limits.HTTP_IDLE_S,
            timeout_graceful_shutdown=int(limits.STOP_S),
            server_header=False,
        )
        super().__init__(config)
        self.serving = asyncio.Event()
        host, _, port = address.rpartition(":")
        try:
            self._listening = socket.create_server((host.strip("[]"), int(port)), backlog=limits.HTTP_REQUESTS_MAX)
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
