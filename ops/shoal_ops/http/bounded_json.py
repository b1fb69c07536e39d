"""Bounds what a request's JSON may cost before it is looked at closely: its values, and what is wrong with them.

pydantic collects one error for each bad item, and FastAPI makes a dictionary of each; only the first is told. So a body
is refused before it is parsed where it holds too many values, and a form is refused at its first fault. Not here: the
forms (models.py), the memory that bodies count as (shoal_runtime.http.bodies).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final

from fastapi._compat import ModelField
from fastapi.routing import APIRoute
from pydantic import BeforeValidator, FailFast, Field
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from shoal_contract.errors import Malformed, TooLarge
from shoal_ops.http import limits, problem
from shoal_ops.http.large_work import cost_of
from shoal_runtime.http.problem import Refused

FIRST: Final = FailFast()
"""Ends the look at a list at its first bad item."""

_STRING: Final = re.compile(rb'"[^"]*+"')
"""A text of JSON from which each escaped character was taken out."""


def check_fields(given: Any, known: Mapping[str, Any]) -> Any:
    """Returns what is given for a form with these fields. Raises PydanticCustomError, which names the first unknown
    field."""
    if isinstance(given, dict) and not given.keys() <= known.keys():
        name = next(name for name in given if name not in known)
        raise PydanticCustomError(
            "unknown_field",
            "the field {name} is not known here: it takes {known}",
            {"name": shown(name), "known": ", ".join(known)},
        )
    return given


def _check_headers(given: Any) -> Any:
    """Refuses headers that are too many, or no text, at the first fault."""
    if not isinstance(given, dict):
        return given  # The form refuses it.
    if len(given) > limits.HEADERS_MAX:
        raise PydanticCustomError(
            "too_many_headers",
            "{count} headers; the limit is {limit}",
            {"count": len(given), "limit": limits.HEADERS_MAX},
        )
    for name, value in given.items():
        if not isinstance(value, str):
            raise PydanticCustomError("header_is_no_text", "header {name} is not text", {"name": shown(name)})
    return given


HeaderTexts = Annotated[dict[str, str], Field(max_length=limits.HEADERS_MAX), BeforeValidator(_check_headers)]


def shown(name: str) -> str:
    """Returns a name that a caller gave as a sentence may hold it: not too long, and valid Unicode."""
    return name[:100].encode("utf-8", "replace").decode()


def check_json(body: bytes) -> int:
    """Refuses a body that holds more than BODY_VALUES_MAX values, without parsing it. Returns how many it holds at
    most. Raises Refused."""
    if json.detect_encoding(body) not in ("utf-8", "utf-8-sig"):
        raise Refused(Malformed("the body is not JSON in UTF-8", subject="body"))
    most = _values(body)  # Counted with what looks like values in texts.
    if most <= limits.BODY_VALUES_MAX:
        return most
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two texts, a name and a value, belong to one value at most: what is left out of count is too much anyway.
    count = _values(_STRING.sub(b"", plain, 2 * limits.BODY_VALUES_MAX + 1))
    if count > limits.BODY_VALUES_MAX:
        raise Refused(
            TooLarge(
                f"the body holds more than {limits.BODY_VALUES_MAX} values: names in lists, headers, fields",
                subject="values in the body",
                limit=limits.BODY_VALUES_MAX,
                value=count,
            )
        )
    return count


def _values(text: bytes) -> int:
    """Returns the most values that a text of JSON may hold: each but the first comes after one of these."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


class _BoundedRequest(Request):
    def __init__(self, request: Request, field: ModelField | None) -> None:
        super().__init__(request.scope, request.receive)
        self._field = field

    async def json(self) -> Any:
        """Returns what the body holds: as Starlette does, or, of a large body, the checked form itself, which FastAPI
        takes as it is. Raises Refused where it holds too much, or does not fit the form."""
        if not hasattr(self, "_json"):
            body, large_work = await self.body(), self.app.state.gateway.large_work
            if len(body) > limits.COUNTED_AT_ONCE_BYTES:  # To count its values takes long, too.
                cost = limits.SMALL_WORK_VALUES + 1
                self._json = await large_work.do(self.scope, cost, lambda: self._read(body, _cost_of(body)))
            else:
                cost = _cost_of(body)
                self._json = await large_work.do(self.scope, cost, lambda: self._read(body, cost))
        return self._json

    def _read(self, body: bytes, cost: int) -> Any:
        found = _parsed(body)
        if self._field is None or cost <= limits.SMALL_WORK_VALUES:
            return found  # FastAPI checks it.
        form, errors = self._field.validate(found, {}, loc=("body",))
        if errors:
            raise Refused(problem.of_validation(errors[0], self.headers))
        return form


def _parsed(body: bytes) -> Any:
    """Returns what a text of JSON holds. Raises Refused for a number that is too long; ValueError for other faults,
    which FastAPI tells."""
    try:
        return json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # The limit that serving.py sets.
        limit = limits.DIGITS_MAX
        problem = f"the body holds a number of more than {limit} digits"
        raise Refused(Malformed(problem, subject="number in the body", limit=limit)) from None


def _cost_of(body: bytes) -> int:
    """Returns what a body costs to read. Raises Refused."""
    return cost_of(check_json(body), len(body))


class BoundedRoute(APIRoute):
    """Is an operation that refuses a body of too many values before it parses it, and reads a large one in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handle(_BoundedRequest(request, self.body_field))

        return bounded
