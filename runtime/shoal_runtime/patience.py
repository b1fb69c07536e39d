"""Bounds the time that peers may take. This process's own slowness does not use up that time.

Where the loop was busy, asyncio.timeout also ends a wait for something that came in time: the loop looks at the clock
before it looks at what arrived. Here the loop has several more turns after the time is over, to take what came.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_TURNS: Final = 5
_TURN_S: Final = 0.002
"""The turns of the loop after the time is over, and the seconds between them. In each turn other threads, such as
gRPC's, may run and report what came."""


class Patience:
    """Does as asyncio.Timeout. `patience_until` makes it."""

    def __init__(self, timeout: asyncio.Timeout, due_s: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._due_s = due_s
        self._next = self._loop.call_at(due_s, self._turn, _TURNS)

    def when(self) -> float:
        """Returns when the time is over, in seconds of the loop's clock."""
        return self._due_s

    def reschedule(self, due_s: float) -> None:
        """Sets another time. This also works when the time is over but the wait has not ended yet."""
        self.stop()
        self._due_s = due_s
        self._next = self._loop.call_at(due_s, self._turn, _TURNS)

    def stop(self) -> None:
        """Removes the bound."""
        self._next.cancel()

    def _turn(self, left: int) -> None:
        if left:
            self._next = self._loop.call_later(_TURN_S, self._turn, left - 1)
        elif not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())


@asynccontextmanager
async def patience_until(due_s: float) -> AsyncIterator[Patience]:
    """Bounds the code within the context. Raises TimeoutError after `due_s`, a time of the loop's clock."""
    async with asyncio.timeout(None) as timeout:
        patience = Patience(timeout, due_s)
        try:
            yield patience
        finally:
            patience.stop()


@asynccontextmanager
async def patience_for(within_s: float) -> AsyncIterator[Patience]:
    """Bounds the code within the context. Raises TimeoutError `within_s` seconds from now."""
    async with patience_until(asyncio.get_running_loop().time() + within_s) as patience:
        yield patience
