"""Shows this process: its page, health, readiness and figures. The figures need the token, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse

from shoal_ops.http import gateway, metrics, models_admin
from shoal_ops.http.parameters import TheGateway

PAGE: Final = Path(__file__).parent / "page"
router = APIRouter(tags=["process"])


@router.get("/healthz", response_model=models_admin.Health)
async def healthz() -> models_admin.Health:
    """Says that the process runs."""
    return models_admin.Health(healthy=True)


@router.get("/readyz", response_model=models_admin.Ready)
async def readyz(running: TheGateway) -> models_admin.Ready:
    """Says whether the process has a map, takes requests and is not asked to stop; answers 503 otherwise."""
    running.check_ready()
    return models_admin.Ready(ready=True)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "shoal_admin_streams 2.0\n"},
            },
        }
    },
)
async def prometheus(request: Request) -> Response:
    """Shows the figures of this process: requests by route and status class, latencies, streams."""
    return Response((await gateway.of(request)).metrics.text(), media_type=metrics.MEDIA_TYPE)


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})
