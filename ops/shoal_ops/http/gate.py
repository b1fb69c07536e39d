"""What every request passes first: token, bounds, the path as it came; and what every answer gets: headers, figures.

Plain ASGI, so that event streams and long polls cost nothing extra. Not here: what a path does (routes_*.py).
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_contract.errors import PermissionDenied, ResourceExhausted, ShoalError, TooLarge
from shoal_ops.http import limits, problem
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token, is_loopback

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Gate:
    """`active`: requests being answered now, event streams left out."""

    def __init__(self, application: ASGIApp, token: Token, metrics: Metrics) -> None:
        self._application = application
        self._token = token
        self._metrics = metrics
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        # Routes match the path as it came: a name in it may hold an encoded slash.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        began = perf_counter()
        sending = _Sending(send)
        self.active += 1
        try:
            await self._pass(scope, receive, sending)
        finally:
            self.active -= 1
            seconds = None if sending.streams else perf_counter() - began
            route = getattr(scope.get("route"), "path", "")
            self._metrics.answered(route, scope["method"], sending.status, seconds)

    async def _pass(self, scope: Scope, receive: Receive, send: _Sending) -> None:
        try:
            self._check(scope)
        except ShoalError as error:
            await problem.answer(error)(scope, receive, send)
            return
        if not scope["path"].endswith("/events"):
            await self._application(scope, receive, send)
            return
        self.active -= 1  # Streams have a bound of their own.
        try:
            await self._application(scope, receive, send)
        finally:
            self.active += 1

    def _check(self, scope: Scope) -> None:
        """Raises Unauthenticated, PermissionDenied, ResourceExhausted, TooLarge."""
        headers = dict(scope["headers"])
        if not self._token.required:
            _check_local(headers)
        elif scope["path"].startswith("/v1/"):
            self._token.check(headers.get(b"authorization"))
        if self.active > limits.REQUESTS_MAX:
            raise ResourceExhausted(
                f"requests under way: {self.active}; the limit is {limits.REQUESTS_MAX}",
                subject="requests under way",
                limit=limits.REQUESTS_MAX,
                value=self.active,
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:18]) > limits.BODY_BYTES_MAX:
            raise TooLarge(
                f"request body is {int(length[:18])} bytes; the limit is {limits.BODY_BYTES_MAX}",
                subject="request body",
                limit=limits.BODY_BYTES_MAX,
                value=int(length[:18]),
            )


def _check_local(headers: dict[bytes, bytes]) -> None:
    """Without a token only this machine may call, and no foreign web page through a browser on it."""
    host = headers.get(b"host", b"").decode("latin-1")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if not is_loopback(name.strip("[]")):
        raise PermissionDenied(f"without a token only localhost is answered, not host {host[:200]}", subject="host")
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        raise PermissionDenied(
            f"without a token, requests of other web pages ({origin[:200]}) are refused", subject="origin"
        )


class _Sending:
    """Sends, adding our headers, and remembers the status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 500
        self.streams = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", ()))
            self.streams = (b"content-type", b"text/event-stream") in headers
            named = {name for name, _ in headers}
            if b"cache-control" not in named:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*headers, *_HEADERS]}
        await self._send(message)
