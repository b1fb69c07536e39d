"""A bound in time on what others do, which this process's own slowness does not use up.

asyncio.timeout ends what came in time, too, where the loop was busy meanwhile: it looks at clocks before it looks at
what arrived. Here the loop has several turns after the time is over, in which what came is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_TURNS: Final = 5
_TURN_S: Final = 0.002
"""Turns of the loop after the time is over: in each other threads, as gRPC's, may run and tell what came."""


class Patience:
    """As asyncio.Timeout; made by `patience_until`."""

    def __init__(self, timeout: asyncio.Timeout, due_s: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._due_s = due_s
        self._next = self._loop.call_at(due_s, self._turn, _TURNS)

    def when(self) -> float:
        """In seconds of the loop's clock."""
        return self._due_s

    def reschedule(self, due_s: float) -> None:
        """To another time, also while the time is over and it has not ended yet."""
        self.stop()
        self._due_s = due_s
        self._next = self._loop.call_at(due_s, self._turn, _TURNS)

    def stop(self) -> None:
        """It ends no more."""
        self._next.cancel()

    def _turn(self, left: int) -> None:
        if left:
            self._next = self._loop.call_later(_TURN_S, self._turn, left - 1)
        elif not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())


@asynccontextmanager
async def patience_until(due_s: float) -> AsyncIterator[Patience]:
    """Bounds what happens within. Raises TimeoutError after `due_s`, a time of the loop's clock."""
    async with asyncio.timeout(None) as timeout:
        patience = Patience(timeout, due_s)
        try:
            yield patience
        finally:
            patience.stop()


@asynccontextmanager
async def patience_for(within_s: float) -> AsyncIterator[Patience]:
    """The same, from now on."""
    async with patience_until(asyncio.get_running_loop().time() + within_s) as patience:
        yield patience
