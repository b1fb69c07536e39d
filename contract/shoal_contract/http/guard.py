"""What every request passes before an application: whose requests are answered, and how many at a time. Plain ASGI.

Health is answered whatever the load: a process that is busy, or under attack, is not dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.http import problem
from shoal_contract.http.bodies import Bodies, Body
from shoal_contract.http.headers import check_host, listens_on_loopback
from shoal_contract.http.limits import HttpLimits

HEALTH: Final = frozenset({"/healthz", "/readyz"})
Check = Callable[[Scope], None]


def _anything(scope: Scope) -> None:
    pass


def guarded(application: ASGIApp, address: str, bounds: HttpLimits) -> Guard:
    """The application of a server without a login. On loopback it answers requests for loopback names only."""
    check = check_host if listens_on_loopback(address) else _anything
    return Guard(application, bounds.requests_max, bounds.body_bytes_max, check)


class Guard:
    """`active`: requests being answered now, but health and `streams`.

    `check` raises the ShoalError that a request is refused with; `streams` tells a path that has bounds of its own.
    """

    def __init__(
        self,
        application: ASGIApp,
        requests_max: int,
        body_bytes_max: int,
        check: Check = _anything,
        streams: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._application = application
        self._requests_max = requests_max
        self._check = check
        self._streams = streams
        self.bodies = Bodies(body_bytes_max)
        self.active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        try:
            self._check(scope)
            body = self._admit(scope, receive)
        except ShoalError as error:
            await problem.answer(error)(scope, receive, send)
            return
        counts = int(not self._is_free(scope["path"]))
        self.active += counts
        try:
            await self._application(scope, body.receive, send)
        except ClientDisconnect:
            pass  # The caller left in the middle of its body: that is no fault of ours, and no line in the log.
        finally:
            self.active -= counts
            body.close()

    def _admit(self, scope: Scope, receive: Receive) -> Body:
        """Raises ResourceExhausted, TooLarge, Malformed."""
        if self.active >= self._requests_max and not self._is_free(scope["path"]) and not self.bodies.end_slowest():
            raise ResourceExhausted(
                f"requests under way: {self.active + 1}; the limit is {self._requests_max}",
                subject="requests under way",
                limit=self._requests_max,
                value=self.active + 1,
            )
        return self.bodies.open(scope, receive)

    def _is_free(self, path: str) -> bool:
        return path in HEALTH or self._streams(path)
