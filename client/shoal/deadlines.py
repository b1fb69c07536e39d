"""Deadlines of calls: one timer for a connection, which depends on no task of it.

Whatever holds waiters (a frame, publishes that wait for a map) is watched from the moment it has them until it has been
answered or given up. So a deadline holds although the session that should have answered has died. Not here: what is
failed at its deadline (frames.py, gather.py, held.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from shoal.limits import EXPIRE_EVERY_S
from shoal.waiting import deadline_exceeded
from shoal_contract.errors import ShoalError

_log = logging.getLogger("shoal")


class Waiters(Protocol):
    """Holds waiters. `deadline`: event loop time of the first that has not been failed; infinity if there is none."""

    deadline: float

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails those beyond their deadline."""


class Deadlines:
    """Looks at what it watches every EXPIRE_EVERY_S; bounded by the frames that may wait or be under way."""

    def __init__(self) -> None:
        self._watched: dict[Waiters, str] = {}
        """With what their error says."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(EXPIRE_EVERY_S, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def watch(self, waiters: Waiters, what: str) -> None:
        """`what`: names the call for its error, as "request to slice s01"."""
        self._watched[waiters] = what

    def forget(self, waiters: Waiters) -> None:
        """They are answered, or given up. Unknown ones are left so."""
        self._watched.pop(waiters, None)

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
