"""Answers what FastAPI, Starlette and pydantic refuse as problems, and describes all problems for OpenAPI.

Not here: the form of a problem, and which status each error has (shoal_runtime.http.problem).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match, Route

from shoal_contract import errors
from shoal_contract.errors import ShoalError
from shoal_runtime.http.problem import MEDIA_TYPE, STATUS, Refused, answer, title

_log = logging.getLogger(__name__)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answers what the framework itself refuses: an unknown path, a wrong method, a body whose reading was given up."""
    assert isinstance(error, HTTPException)
    if isinstance(error, Refused):
        return answer(error.error, error.status_code)
    what = f"{request.method} {request.scope['path']}"[:300]
    if error.status_code == 404:
        problem = f"{what}: there is no such path; /openapi.json lists them"
    elif error.status_code == 405:
        problem = f"{what}: this path does not take {request.method}"
        return answer(errors.Malformed(problem, subject="request"), 405, {"Allow": ", ".join(_allowed(request))})
    else:
        problem = f"{what}: {error.detail}"
    headers = dict(error.headers) if error.headers else None
    return answer(errors.Malformed(problem, subject="request"), error.status_code, headers)


def _allowed(request: Request) -> list[str]:
    """Returns the methods of all routes of this path: each route knows only its own."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def answer_validation(request: Request, error: Exception) -> JSONResponse:
    """Answers with the first thing that is wrong and its place in the request."""
    assert isinstance(error, RequestValidationError)
    return answer(of_validation(error.errors()[0], request.headers))


def of_validation(found: Mapping[str, Any], headers: Mapping[str, str]) -> errors.Malformed:
    """Returns what pydantic found, and its place in the request, as an error."""
    place = ".".join(str(part) for part in found["loc"])
    problem = _sentence(found, place)[:1000]
    if place == "body" and "json" not in headers.get("content-type", ""):
        problem = "the body is not taken as JSON without the header Content-Type: application/json"
    return errors.Malformed(problem, subject=place[:300])


def _sentence(found: Mapping[str, Any], place: str) -> str:
    """Returns what is wrong. For the two commonest faults, in place of pydantic's words, it says what to do."""
    if found["type"] == "json_invalid":
        return f"the body is not JSON: {found.get('ctx', {}).get('error', 'it cannot be read')} (character {place[5:]})"
    if found["type"] == "missing" and len(found["loc"]) > 1:
        where, *names = map(str, found["loc"])
        return f"the {_PLACES.get(where, where)} {'.'.join(names)} is missing"
    if found["type"] == "missing":
        return "the body is missing: send JSON"
    if found["type"] == "unknown_field" and place == "body":
        return str(found["msg"])
    return f"{place}: {found['msg']}"


_PLACES: Final = {"query": "parameter", "body": "field", "header": "header", "path": "part of the path"}


async def answer_bug(request: Request, error: Exception) -> JSONResponse:
    """Answers an error that is our bug: the log gets the traceback, the caller a plain sentence."""
    _log.error(
        "%s %s failed by a fault of the gateway, and was answered 500: please report it with what follows",
        *(request.method, request.scope["path"]),
        exc_info=error,
    )
    return answer(ShoalError("this request failed inside the gateway; its log says why"), 500)


_BY_THE_SERVER: Final[tuple[tuple[type[ShoalError], int], ...]] = (
    (errors.DeadlineExceeded, 408),
    (errors.TooLarge, 431),
)
"""The errors that the server answers before an operation: a body that came too slowly, a head that is too long."""


def responses() -> dict[int | str, dict[str, Any]]:
    """Returns what every operation may answer besides its own answers, for OpenAPI."""
    kinds: dict[int, list[str]] = {}
    for kind, status in (*STATUS.items(), *_BY_THE_SERVER):
        kinds.setdefault(status, []).append(kind.__name__)
    return {status: _described(status, names) for status, names in sorted(kinds.items())}


def _described(status: int, kinds: list[str]) -> dict[str, Any]:
    plain = _example(kinds[0], "a sentence that names the thing and the limit", "the thing")
    example = _EXAMPLES.get(kinds[0], plain) | {"status": status}
    return {"description": ", ".join(kinds), "content": {MEDIA_TYPE: {"schema": _SCHEMA, "example": example}}}


_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "subject", "limit", "value"],
    "properties": {
        "type": {"type": "string", "description": "urn:shoal:error: and the error's name"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "names the thing and the limit"},
        "subject": {"type": "string", "description": "the key, queue, limit or file that it is about"},
        "limit": {"type": "integer", "description": "0 where none is meant"},
        "value": {"type": "integer", "description": "what broke the limit"},
        "failed": {
            "type": "array",
            "description": "where the request names many things, each of them that was not done",
            "items": {
                "type": "object",
                "required": ["name", "type", "detail"],
                "properties": {name: {"type": "string"} for name in ("name", "type", "detail")},
            },
        },
    },
}


def _example(kind: str, detail: str, subject: str, limit: int = 0, value: int = 0) -> dict[str, Any]:
    numbers = {"limit": limit, "value": value}
    return {"type": f"urn:shoal:error:{kind}", "title": title(kind), "detail": detail, "subject": subject} | numbers


_EXAMPLES: Final = {
    "InvalidName": _example("InvalidName", "queue name is 300 bytes; the limit is 255", "queue", 255, 300),
    "Unauthenticated": _example("Unauthenticated", "this needs the header Authorization: Bearer TOKEN", "token"),
    "PermissionDenied": _example("PermissionDenied", "requests of other web pages are refused", "origin"),
    "NoSuchQueue": _example("NoSuchQueue", "queue anna does not exist; declare it first", "anna"),
    "Conflict": _example("Conflict", "queue anna is durable; it was declared with expires_after_s 60", "anna"),
    "TooLarge": _example("TooLarge", "request body is 5000000 bytes; the limit is 4194304", "request body", 4194304),
    "ResourceExhausted": _example("ResourceExhausted", "streams: 501; the limit is 500", "streams", 500, 501),
    "Corrupt": _example("Corrupt", "this request failed inside the gateway; its log says why", ""),
    "Unavailable": _example("Unavailable", "slice s02 has no leader now", "s02"),
    "DeadlineExceeded": _example("DeadlineExceeded", "request to slice s02: no answer before the deadline", "s02"),
}
