"""Guards an application: decides which requests are answered, and how many at a time. Plain ASGI.

Health requests are answered under any load: a process that is busy, or under attack, is not dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_contract.errors import Malformed, ResourceExhausted, ShoalError
from shoal_runtime.http import problem
from shoal_runtime.http.bodies import Bodies, Body
from shoal_runtime.http.headers import check_host, listens_on_loopback
from shoal_runtime.http.limits import HttpLimits

HEALTH: Final = frozenset({"/healthz", "/startedz", "/readyz"})
Check = Callable[[Scope], None]


def _anything(scope: Scope) -> None:
    pass


def _none(scope: Scope) -> bool:
    return False


def _closing(send: Send) -> Send:
    """Returns a `send` that ends the connection with the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    return sending


def never() -> bool:
    return False


def guarded(application: ASGIApp, address: str, bounds: HttpLimits, is_leaving: Callable[[], bool] = never) -> Guard:
    """Returns the guarded application of a server without a login. On loopback it answers only requests for loopback
    names."""
    check = check_host if listens_on_loopback(address) else _anything
    return Guard(application, bounds, check, is_leaving=is_leaving)


class Guard:
    """Checks and counts requests before they reach the application. `active`: the number of requests being answered
    now, without health and `streams`.

    `check` raises the ShoalError that refuses a request. `streams` tells whether a request has bounds of its own; it
    may have no body. `is_leaving` tells whether the process is to stop: then each answer ends its connection, and its
    peer can go elsewhere in an orderly way.
    """

    def __init__(
        self,
        application: ASGIApp,
        bounds: HttpLimits,
        check: Check = _anything,
        streams: Callable[[Scope], bool] = _none,
        is_leaving: Callable[[], bool] = never,
    ) -> None:
        self._application = application
        self._requests_max = bounds.requests_max
        self._check = check
        self._streams = streams
        self._is_leaving = is_leaving
        self.bodies = Bodies(bounds.body_bytes_max)
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        if self._is_leaving():
            send = _closing(send)
        try:
            self._check(scope)
            body = self._admit(scope, receive)
        except ShoalError as error:
            await problem.answer(error)(scope, receive, send)
            return
        counts = int(not self._is_free(scope))
        self.active += counts
        try:
            await self._application(scope, body.receive, send)
        except ClientDisconnect:
            pass  # The caller left in the middle of its body: this is not our fault, so it is not logged.
        finally:
            self.active -= counts
            body.close()

    def _admit(self, scope: Scope, receive: Receive) -> Body:
        """Returns the request's body, with its place taken. Raises ResourceExhausted, TooLarge, Malformed."""
        if self.active >= self._requests_max and not self._is_free(scope) and not self.bodies.end_late():
            raise ResourceExhausted(
                f"requests under way: {self.active + 1}; the limit is {self._requests_max}",
                subject="requests under way",
                limit=self._requests_max,
                value=self.active + 1,
            )
        body = self.bodies.open(scope, receive)
        if body.place_bytes and self._streams(scope):
            # It would be there, and count, for as long as the stream is open.
            body.close()
            raise Malformed("an event stream takes no body", subject="request body")
        return body

    def _is_free(self, scope: Scope) -> bool:
        return scope["path"] in HEALTH or self._streams(scope)
