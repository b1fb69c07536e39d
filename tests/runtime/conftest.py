"""An HTTP server in this process with small bounds, before an application that reads, answers much, or streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from shoal_contract.errors import ShoalError
from shoal_runtime.http.guard import Guard
from shoal_runtime.http.limits import HttpLimits
from shoal_runtime.http.problem import answer_error, answer_http_exception
from shoal_runtime.http.server import HttpServer
from shoal_runtime.tasks import Tasks

WAIT_S = 60
SMALL = HttpLimits(connections_max=40, requests_max=8, head_bytes_max=2048, body_bytes_max=1 << 20, idle_s=60, stop_s=1)
LARGE = b"x" * (8 << 20)


@dataclass(frozen=True)
class Served:
    """A running server. `guard` is before its application, `release` lets `/wait` answer."""

    server: HttpServer
    guard: Guard
    release: asyncio.Event

    @property
    def host_port(self) -> tuple[str, int]:
        host, _, port = self.server.address.rpartition(":")
        return host.strip("[]"), int(port)

    async def connect(self, sent: bytes = b"") -> Raw:
        reader, writer = await asyncio.open_connection(*self.host_port, limit=1 << 16)
        raw = Raw(reader, writer)
        await raw.send(sent)
        return raw

    async def many(self, count: int, sent: bytes = b"") -> list[Raw]:
        return [await self.connect(sent) for _ in range(count)]

    async def is_healthy(self) -> bool:
        """Asks on a connection of its own."""
        async with httpx.AsyncClient(base_url=f"http://{self.server.address}", trust_env=False, timeout=WAIT_S) as http:
            return (await http.get("/healthz")).status_code == 200


@dataclass(frozen=True)
class Raw:
    """A connection that says what it likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """Status and JSON body of the next answer."""
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await self.reader.readexactly(int(fields[b"content-length"]))
        return int(head.split(b" ", 2)[1]), json.loads(body)

    async def is_closed(self) -> bool:
        """Waits for the end of the connection; False if something else comes first."""
        async with asyncio.timeout(WAIT_S):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True


def new_application(release: asyncio.Event) -> Starlette:
    async def health(request: Request) -> Response:
        return JSONResponse({"healthy": True})

    async def length(request: Request) -> Response:
        return JSONResponse({"length": len(await request.body())})

    async def wait(request: Request) -> Response:
        await release.wait()
        return JSONResponse({})

    async def large(request: Request) -> Response:
        return PlainTextResponse(LARGE)

    async def fail(request: Request) -> Response:
        raise RuntimeError("a bug")

    async def stream(request: Request) -> Response:
        async def events() -> AsyncIterator[bytes]:
            while True:
                yield LARGE[: 1 << 16]
                # A peer that is gone makes no write wait.
                await asyncio.sleep(0)

        return StreamingResponse(events())

    paths: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/healthz": health, "/length": length, "/wait": wait, "/large": large, "/fail": fail, "/events": stream,
    }  # fmt: skip
    routes = [Route(path, answer, methods=["GET", "POST"]) for path, answer in paths.items()]
    return Starlette(routes=routes, exception_handlers={ShoalError: answer_error, HTTPException: answer_http_exception})


@asynccontextmanager
async def serving(
    bounds: HttpLimits = SMALL, address: str = "127.0.0.1:0", is_leaving: bool = False
) -> AsyncIterator[Served]:
    failures: list[BaseException] = []
    release = asyncio.Event()
    server = HttpServer(address, bounds)
    guard = Guard(
        new_application(release),
        bounds,
        streams=lambda scope: (scope["method"], scope["path"]) == ("GET", "/events"),
        is_leaving=lambda: is_leaving,
    )
    async with Tasks("test", lambda name, error: failures.append(error)) as tasks:
        task = tasks.start("http", server.run_until_stopped(guard))
        await server.serving.wait()
        yield Served(server, guard, release)
        release.set()
        server.stop()
        await asyncio.wait([task], timeout=WAIT_S)
    assert not failures


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


async def until(holds: Callable[[], object]) -> None:
    """Waits until it holds, with turns for everything else."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)
