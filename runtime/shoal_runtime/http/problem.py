"""Writes errors as `application/problem+json` (RFC 9457): type (docs/concepts.md), subject, limit and value.

Belongs here: which error has which status, and the form. Not here: raising errors, their description in OpenAPI (ops).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from shoal_contract import errors
from shoal_contract.errors import ShoalError
from shoal_contract.names import encode_name, show

MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final[dict[type[ShoalError], int]] = {
    errors.InvalidName: 400,
    errors.OutOfRange: 400,
    errors.Malformed: 400,
    errors.CrossSlice: 400,
    errors.Unauthenticated: 401,
    errors.PermissionDenied: 403,
    errors.NoSuchQueue: 404,
    errors.Unroutable: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.ResourceExhausted: 429,
    errors.Corrupt: 500,
    errors.NotOwner: 503,
    errors.NotLeader: 503,
    errors.Unavailable: 503,
    errors.Fenced: 503,
    errors.DeadlineExceeded: 504,
}
_EXTRA_HEADERS: Final = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}


class Refused(HTTPException):
    """Carries a typed error through a framework that reads a body: it would turn a ShoalError into something else."""

    def __init__(self, error: ShoalError, status: int = 0) -> None:
        super().__init__(status or status_of(error), error.message)
        self.error = error


def status_of(error: ShoalError) -> int:
    return STATUS.get(type(error), 500)


def title(kind: str) -> str:
    """Returns the title of an error's type: "No such queue" for "NoSuchQueue"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).capitalize()


def body_of(error: ShoalError, status: int = 0) -> dict[str, Any]:
    """Returns {"type", "title", "status", "detail", "subject", "limit", "value"}, and "failed" if the call named many
    things: {"name", "type", "detail"} of each that was not done. `status` 0: the error's own."""
    kind = type(error).__name__
    failed = [
        {"name": show(encode_name(name, "name")), "type": _type(one), "detail": one.message}
        for name, one in error.failed.items()
    ]
    return ({"failed": failed} if failed else {}) | {
        "type": _type(error),
        "title": title(kind),
        "status": status or status_of(error),
        "detail": error.message,
        "subject": error.subject,
        "limit": error.limit,
        "value": error.value,
    }


def _type(error: ShoalError) -> str:
    return f"urn:shoal:error:{type(error).__name__}"


class _Problem(JSONResponse):
    """Is a problem as it is sent. What an error quotes of a request need not be valid Unicode."""

    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def answer(error: ShoalError, status: int = 0, headers: dict[str, str] | None = None) -> JSONResponse:
    body = body_of(error, status)
    sent = _EXTRA_HEADERS.get(body["status"], {}) | (headers or {})
    return _Problem(body, body["status"], headers=sent)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Handles a ShoalError, for Starlette."""
    assert isinstance(error, ShoalError)
    return answer(error)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Handles an HTTPException, for Starlette: an unknown path, a wrong method, or `Refused`."""
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused):
        return answer(error.error, error.status_code)
    what = f"{request.method} {request.scope['path']}"[:300]
    headers = dict(error.headers) if error.headers else None
    malformed = errors.Malformed(f"{what}: {error.detail}", subject="request")
    return answer(malformed, error.status_code, headers)
