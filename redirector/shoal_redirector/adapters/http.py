"""Serves HTTP: `GET /v1/locate?key=`, `/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal_contract.errors import Malformed, ShoalError, Unavailable
from shoal_contract.names import text
from shoal_redirector import limits
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.tally import RedirectorMetrics, Tally
from shoal_redirector.core.directory import check_keys, locate
from shoal_runtime.http import query
from shoal_runtime.http.problem import answer_error, answer_http_exception
from shoal_runtime.memory_guard import MemoryGuard


def new_application(
    board: Board, tally: Tally, is_leaving: Callable[[], bool] = lambda: False, memory: MemoryGuard | None = None
) -> Starlette:
    """Returns the ASGI application. Errors are problem+json. `is_leaving`: tells whether the process is to stop, and
    still serves. `memory`: the guard whose metrics are shown."""
    of_process = RedirectorMetrics(board, tally, memory)

    async def locate_keys(request: Request) -> JSONResponse:
        """Returns {"map_version", "age_ms", "keys": [{"key", "partition", "slice", "address", "epoch"}]}, with the keys
        in the order of the question."""
        keys = _keys_in(request.scope["query_string"])
        check_keys(keys, limits.HTTP_KEYS_MAX)
        directory = board.newest()
        tally.located(len(keys))
        found = []
        for key, partition, owner in zip(keys, *locate(directory, keys), strict=True):
            at = directory.slices[owner]
            place = {"partition": partition, "slice": at.slice, "address": at.address, "epoch": at.epoch}
            found.append({"key": text(key), **place})
        return JSONResponse({"map_version": directory.map.version, "age_ms": board.age_ms, "keys": found})

    async def healthz(request: Request) -> JSONResponse:
        """Answers that the process runs."""
        return JSONResponse({"healthy": True})

    async def readyz(request: Request) -> JSONResponse:
        """Answers 200 if there is a map and the process is not to stop; else 503."""
        if is_leaving():
            raise Unavailable("this redirector is stopping; use another", subject="redirector")
        return JSONResponse({"ready": True, "map_version": board.newest().map.version, "age_ms": board.age_ms})

    async def metrics(request: Request) -> Response:
        """Answers with the metrics, for Prometheus."""
        return Response(of_process.text(), media_type=CONTENT_TYPE_LATEST)

    answers = {"/v1/locate": locate_keys, "/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    routes = [Route(path, answer) for path, answer in answers.items()]
    handlers = {ShoalError: answer_error, HTTPException: answer_http_exception}
    return Starlette(routes=routes, exception_handlers=handlers)


def _keys_in(query_string: bytes) -> list[bytes]:
    """Returns the values of `key`, percent-decoded to bytes: a key need not be UTF-8. Raises Malformed if there is
    none."""
    query.check_names(query_string, {"key"})
    keys = query.values(query_string, "key")
    if not keys:
        raise Malformed("no key to locate: ask with ?key=..., repeated for more keys", subject="key")
    return keys
