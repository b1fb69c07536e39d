"""Keeps the deadlines of calls: one timer for each connection, which does not depend on the connection's tasks.

Every object that holds waiters (a frame, publishes that wait for a map) is watched from its first waiter until it is
answered or given up. So a deadline holds even if the session that should have answered has died. Not here: what is
failed at its deadline (core/frames.py, core/gather.py, core/held.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from shoal.core.refusals import deadline_exceeded
from shoal.limits import EXPIRE_EVERY_S
from shoal_contract.errors import ShoalError

_log = logging.getLogger("shoal")
_LOOKS_PER_S: Final = round(1 / EXPIRE_EVERY_S)


class Waiters(Protocol):
    """Holds waiters. `deadline`: event loop time of the earliest that has not failed; infinity if there is none."""

    deadline: float

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails the waiters beyond their deadline."""


class Deadlines:
    """Checks the waiters it watches every EXPIRE_EVERY_S. Bounded by the frames that may wait or be under way."""

    def __init__(self) -> None:
        self._watched: dict[Waiters, str] = {}
        """Waiters -> the name of the call, for their error."""
        self._timer: asyncio.TimerHandle | None = None
        self._lookers: dict[Callable[[float], None], None] = {}
        self._looks = 0

    def start(self) -> None:
        """Begins to check, in the running event loop."""
        self._timer = asyncio.get_running_loop().call_later(EXPIRE_EVERY_S, self._look)

    def close(self) -> None:
        """Ends the checks: no deadline is kept after this."""
        if self._timer is not None:
            self._timer.cancel()

    def watch(self, waiters: Waiters, what: str) -> None:
        """Begins to watch. `what`: names the call for its error, as "request to slice s01"."""
        self._watched[waiters] = what

    def forget(self, waiters: Waiters) -> None:
        """Stops watching waiters that are answered or given up. Does nothing for unknown ones."""
        self._watched.pop(waiters, None)

    def each_second(self, look: Callable[[float], None]) -> None:
        """Calls `look` about once a second, with the event loop time, until `no_more`."""
        self._lookers[look] = None

    def no_more(self, look: Callable[[float], None]) -> None:
        """Calls `look` no more. Does nothing for an unknown one."""
        self._lookers.pop(look, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(EXPIRE_EVERY_S, self._look)
        now = loop.time()
        for waiters, what in [entry for entry in self._watched.items() if entry[0].deadline <= now]:
            try:
                waiters.expire(now, deadline_exceeded(what))
            except Exception:
                _log.warning("deadlines of %s could not be kept; this is a defect of the library", what, exc_info=True)
                self._watched.pop(waiters, None)
        self._looks += 1
        if self._looks % _LOOKS_PER_S == 0:
            for look in list(self._lookers):
                look(now)
