"""Typed errors over HTTP: `application/problem+json` (RFC 9457) with Shoal's own fields beside the standard ones."""

from __future__ import annotations

from typing import Final

import grpc
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from shoal_contract.errors import ShoalError
from shoal_contract.grpc_errors import status_of
from shoal_contract.wire import common_pb2

_HTTP_STATUS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """{"status", "title", "detail", "code", "message", "subject", "limit", "value"}; `code` as in `shoal.v1`."""
    assert isinstance(error, ShoalError)
    code = common_pb2.ErrorCode.Name(error.code).removeprefix("ERROR_CODE_")
    own: dict[str, str | int] = {"subject": error.subject, "limit": error.limit, "value": error.value}
    return _problem(_HTTP_STATUS.get(status_of(error), 500), code, error.message, own)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """No such path, or not this method."""
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, "MALFORMED", f"{request.method} {request.url.path}: {error.detail}", {})


def _problem(status: int, code: str, message: str, own: dict[str, str | int]) -> JSONResponse:
    body = {"status": status, "title": code, "detail": message, "code": code, "message": message}
    return JSONResponse(
        body | {"subject": "", "limit": 0, "value": 0} | own, status, media_type="application/problem+json"
    )
