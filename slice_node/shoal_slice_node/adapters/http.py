"""Serves a node's HTTP for probes and Prometheus: `/healthz`, `/startedz`, `/readyz`, `/metrics`. Reads only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal_contract.errors import ShoalError, Unavailable
from shoal_runtime.http.guard import guarded
from shoal_runtime.http.limits import BESIDE_GRPC_PAUSE_S, HttpLimits
from shoal_runtime.http.problem import answer_error, answer_http_exception
from shoal_runtime.http.server import HttpServer
from shoal_runtime.tasks import OnFailure, Tasks
from shoal_slice_node.adapters import limits
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.metrics import ShownRole, SliceMetrics

_LIMITS = HttpLimits(
    limits.HTTP_CONNECTIONS_MAX,
    limits.HTTP_REQUESTS_MAX,
    limits.HTTP_HEAD_BYTES_MAX,
    limits.HTTP_BODY_BYTES_MAX,
    limits.HTTP_IDLE_S,
    limits.STOP_S,
    BESIDE_GRPC_PAUSE_S,
)
_TOLD = {
    "waiting": "it waits for etcd to say what the cluster is",
    "leading": "it leads, and waits for its partitions",
}
"""What is said of a role in which a node is not ready, where its name alone would mislead."""


class Watched:
    """Keeps what HTTP shows of the node: its role, and its figures while it serves. `address`: its host:port. `now_s`:
    a clock that only grows."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.address = ""
        self.metrics = SliceMetrics()
        self._now_s = now_s
        self._shown_s = now_s()
        """When the role was shown first."""

    def show(self, shown: ShownRole, figures: Figures | None) -> None:
        """Shows the role from now on. `figures`: those of a leader that serves; None: the node is not ready."""
        if shown != self.metrics.role:
            self._shown_s = self._now_s()
        self.metrics.role, self.metrics.figures = shown, figures

    @property
    def said_of_role(self) -> str:
        """Says in which role the node is, as a clause."""
        role = self.metrics.role
        return "not yet" if role is None else _TOLD.get(role.role, f"it is {role.role}")

    @property
    def started(self) -> bool:
        """Returns whether the start is over: the data is open and recovered. A node that has waited for etcd for
        STARTED_WAIT_S counts as started, too: nothing is gained if it starts again."""
        role = self.metrics.role
        if role is None or role.role == "opening":
            return False
        return role.role != "waiting" or self._now_s() - self._shown_s >= limits.STARTED_WAIT_S


@asynccontextmanager
async def watched_over(
    address: str, on_failure: OnFailure, now_s: Callable[[], float] = time.monotonic
) -> AsyncIterator[Watched]:
    """Serves HTTP at `address` from the start, also before the node is ready. Raises OSError if it cannot listen on the
    address."""
    watched = Watched(now_s)
    server = HttpServer(address, _LIMITS)
    application = guarded(new_application(watched), address, _LIMITS)
    async with Tasks("http", on_failure) as tasks:
        serving = tasks.start("serve", server.run_until_stopped(application))
        await server.serving.wait()
        watched.address = server.address
        try:
            yield watched
        finally:
            server.stop()
            await asyncio.wait([serving], timeout=2 * limits.STOP_S)


def new_application(watched: Watched) -> Starlette:
    async def healthz(request: Request) -> JSONResponse:
        """Answers that the process runs. It may still wait to lead its slice, or read its journal."""
        return JSONResponse({"healthy": True})

    async def startedz(request: Request) -> JSONResponse:
        """Answers that the start is over, whatever the node waits for or refuses now; else answers 503."""
        if not watched.started:
            raise Unavailable(f"this node has not started yet: {watched.said_of_role}", subject="slice")
        return JSONResponse({"started": True})

    async def readyz(request: Request) -> JSONResponse:
        """Answers that the node leads its slice, serves and takes changes; else answers 503 with the reason."""
        figures = watched.metrics.figures
        if figures is None:
            raise Unavailable(f"this node does not serve its slice now: {watched.said_of_role}", subject="slice")
        found = figures.now()
        if figures.refuses:
            raise Unavailable(figures.refuses, subject="slice")
        return JSONResponse({"ready": True, "slice": found.slice, "epoch": found.epoch, "lsn": found.journal.lsn})

    async def metrics(request: Request) -> Response:
        """Answers with the metrics, for Prometheus."""
        return Response(watched.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    answers = {"/healthz": healthz, "/startedz": startedz, "/readyz": readyz, "/metrics": metrics}
    return Starlette(
        routes=[Route(path, answer) for path, answer in answers.items()],
        exception_handlers={ShoalError: answer_error, HTTPException: answer_http_exception},
    )
