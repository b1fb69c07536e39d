"""Serves health and figures at a port of their own, without the token: for probes and Prometheus, not for the
outside."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal_contract.errors import ShoalError
from shoal_ops.http import metrics
from shoal_ops.http.gateway import Gateway
from shoal_runtime.http.problem import answer_error, answer_http_exception


def new_metrics_application(gateway: Gateway) -> Starlette:
    """Returns an application with `/healthz`, `/readyz` and `/metrics` of a gateway that is open."""

    async def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"healthy": True})

    async def readyz(request: Request) -> JSONResponse:
        gateway.check_ready()
        return JSONResponse({"ready": True})

    async def figures(request: Request) -> Response:
        return Response(gateway.metrics.text(), media_type=metrics.MEDIA_TYPE)

    return Starlette(
        routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", figures)],
        exception_handlers={ShoalError: answer_error, HTTPException: answer_http_exception},
    )
