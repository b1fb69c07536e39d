"""A bound in time in which the process ran: one that stood still for a second has lost one part of its patience.

For what others pay for: a client that could not be heard must not be taken for one that keeps silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_PARTS: Final = 10


@asynccontextmanager
async def running_time(within_s: float) -> AsyncIterator[None]:
    """As asyncio.timeout, in ten parts, one after the other. Raises TimeoutError."""
    async with asyncio.timeout(None) as patience:
        next_part: list[asyncio.TimerHandle] = []
        _wait(patience, within_s / _PARTS, _PARTS, next_part)
        try:
            yield
        finally:
            next_part[0].cancel()


def _wait(patience: asyncio.Timeout, part_s: float, parts: int, next_part: list[asyncio.TimerHandle]) -> None:
    loop = asyncio.get_running_loop()
    if parts:
        next_part[:] = [loop.call_later(part_s, _wait, patience, part_s, parts - 1, next_part)]
    else:
        patience.reschedule(loop.time())
