"""uvicorn on the event loop that already runs, on a socket already bound; signals stay with the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

from shoal_ops.http import limits


class HttpServer(uvicorn.Server):
    """`address` is the real host:port. Serve with `run_until_stopped`, in a task. Raises OSError."""

    def __init__(self, address: str) -> None:
        config = uvicorn.Config(
            _not_yet,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            backlog=limits.CONNECTIONS_MAX,
            limit_concurrency=limits.CONNECTIONS_MAX,
            h11_max_incomplete_event_size=limits.HEAD_BYTES_MAX,
            timeout_keep_alive=limits.IDLE_S,
            timeout_graceful_shutdown=limits.STOP_S,
            server_header=False,
        )
        super().__init__(config)
        self.serving = asyncio.Event()
        host, _, port = address.rpartition(":")
        try:
            self._listening = _listen(host.strip("[]"), int(port))
        except (OSError, ValueError, OverflowError) as error:
            raise OSError(f"cannot listen on {address}: {error}") from None
        self.address = f"{host}:{self._listening.getsockname()[1]}"

    async def run_until_stopped(self, application: Any) -> None:
        """Serves an ASGI application."""
        self.config.app = application
        await self.serve(sockets=[self._listening])

    def stop(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=limits.CONNECTIONS_MAX)


async def _not_yet(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is served before run_until_stopped")
