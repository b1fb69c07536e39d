"""Checks every request to the gateway before anything else: its token, or that it comes from this machine; its bounds.
Keeps the path as it came. Adds headers to every answer and counts it. Plain ASGI, so that event streams and long polls
cost nothing extra.

Not here: what a path does (routes_*.py), bounds that all servers share (shoal_runtime.http).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_contract.errors import PermissionDenied, ShoalError
from shoal_ops.http import limits
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token
from shoal_runtime.http import problem
from shoal_runtime.http.guard import HEALTH, Guard, never
from shoal_runtime.http.headers import names_loopback, one_value
from shoal_runtime.http.limits import LOG_LINES_PER_S
from shoal_runtime.rare_log import RareLog

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_OPEN: Final = HEALTH | {"/"}
"""The paths that need no token, besides everything below /page/. Health tells one bit; the page shows nothing before it
has the token."""

_STREAMS: Final = re.compile(r"/v1/(queues/[^/]+|keys/[^/]+/members|counts)/events")
"""The paths of event streams. They have bounds of their own: STREAMS_MAX and WATCHES_MAX."""

_log = logging.getLogger(__name__)


class Gate:
    """Passes a request on once it is checked. `guard` holds the bounds of requests and bodies."""

    def __init__(
        self, application: ASGIApp, token: Token, metrics: Metrics, is_leaving: Callable[[], bool] = never
    ) -> None:
        self._token = token
        self._metrics = metrics
        self._wrong = RareLog(_log, LOG_LINES_PER_S)
        self._refusals_held = 0
        self.guard = Guard(application, limits.HTTP, streams=_is_stream, is_leaving=is_leaving)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.guard(scope, receive, send)
            return
        # Nothing here is answered in parts; Starlette would do so for files, and refuse what it cannot read as text.
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
        # Routes match the path as it came: a name in it may hold an encoded slash.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        began = perf_counter()
        sending = _Sending(send)
        try:
            await self._pass(scope, receive, sending)
        finally:
            seconds = None if sending.streams else perf_counter() - began
            route = getattr(scope.get("route"), "path", "")
            self._metrics.answered(route, scope["method"], sending.status, seconds)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if self._token.required:
                await self._check_token(scope)
            else:
                _check_local(scope)
        except ShoalError as error:
            await problem.answer(error)(scope, receive, send)
            return
        await self.guard(scope, receive, send)

    async def _check_token(self, scope: Scope) -> None:
        """Checks the token, except for paths that need none. Raises Unauthenticated, Malformed."""
        if scope["path"] in _OPEN or scope["path"].startswith("/page/"):
            return
        given = one_value(scope["headers"], b"authorization")
        try:
            self._token.check(given)
        except ShoalError:
            if given is not None:
                await self._hold_refusal(scope)
            raise

    async def _hold_refusal(self, scope: Scope) -> None:
        """Delays the refusal of a wrong token, so that guesses are slow, and logs where the request came from."""
        host, port = scope.get("client") or ("an unknown peer", 0)
        self._wrong.warning("a wrong token was refused, from %s port %d", host, port)
        if self._refusals_held >= limits.REFUSALS_HELD_MAX:
            return
        self._refusals_held += 1
        try:
            await asyncio.sleep(limits.REFUSAL_S)
        finally:
            self._refusals_held -= 1


def _is_stream(scope: Scope) -> bool:
    """Tells whether a request opens an event stream. A queue or a key may be named `events`, too."""
    return scope["method"] == "GET" and _STREAMS.fullmatch(scope["path"]) is not None


def _check_local(scope: Scope) -> None:
    """Checks, where there is no token, that a request comes from this machine and was not sent by a foreign web page.

    A page can make a browser on this machine send requests without an Origin (a link, a window, an image). The browser
    describes such requests in Sec-Fetch-*, which no page can set. Raises PermissionDenied, Malformed.
    """
    headers = scope["headers"]
    host = one_value(headers, b"host") or ""
    if not names_loopback(host):
        raise PermissionDenied(f"without a token only localhost is answered, not host {host[:200]}", subject="host")
    origin = one_value(headers, b"origin")
    if origin is not None and origin != f"{scope['scheme']}://{host}":
        raise _foreign(f"requests of other web pages ({origin[:200]}) are refused", "origin")
    site = one_value(headers, b"sec-fetch-site") or "none"
    if scope["path"].startswith("/v1/") and site not in ("same-origin", "none"):
        raise _foreign(
            f"requests that another web page makes a browser send ({site[:50]}) are refused", "sec-fetch-site"
        )
    if _is_stream(scope) and one_value(headers, b"sec-fetch-mode") == "navigate":
        raise _foreign("an event stream is not opened as a page of a browser: it takes messages", "sec-fetch-mode")


def _foreign(what: str, subject: str) -> PermissionDenied:
    return PermissionDenied(f"without a token, {what}", subject=subject)


class _Sending:
    """Sends an answer with the gateway's headers added, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self.streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [header for header in message.get("headers", ()) if header[0] != b"accept-ranges"]
            self.streams = (b"content-type", b"text/event-stream") in headers
            named = {name for name, _ in headers}
            if b"cache-control" not in named:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*headers, *_HEADERS]}
        await self._send(message)
