"""Does the work that large bodies cost: parsing, checking, making of messages, in a thread, so that other requests go
between.

The cost is known before the work starts: the values and bytes of the body. Small work is done at once, in the loop.
Large work waits for its turn: one piece at a time, connections in turn, so that however many send such bodies, the loop
shares the processor with one thread. Not here: how many values a body may hold (bounded_json.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.types import Scope

from shoal_ops.http import limits
from shoal_runtime.places import Places, PlacesLimits

Result = TypeVar("Result")


class LargeWork:
    """Does work for requests. `len`: how many pieces of large work wait for their turn or are done now."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "large work")
        bounds = PlacesLimits(
            places_max=limits.LARGE_WORK_MAX,
            places_each_max=1,
            waiting_max=limits.WAITING_LARGE_WORK_MAX,
            waiting_each_max=limits.WAITING_LARGE_WORK_MAX - 1,
        )
        self._places = Places("requests with large bodies that wait", bounds)
        self._steps = Places("requests with large bodies that wait", bounds)
        self._under_way = 0

    def __len__(self) -> int:
        return self._under_way

    async def do(self, scope: Scope, cost: int, work: Callable[[], Result]) -> Result:
        """Returns what the work returns. `cost`: as `cost_of` counts. Raises ResourceExhausted where too many wait, and
        what the work raises."""
        if cost <= limits.SMALL_WORK_VALUES:
            return work()
        async with self._place(self._places, scope):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @asynccontextmanager
    async def turn(self, scope: Scope, cost: int) -> AsyncIterator[None]:
        """Waits for the turn of large work that is done in the loop, in steps: so that few do some of it at a time.
        Small work has no turn. Raises ResourceExhausted where too many wait."""
        if cost <= limits.SMALL_WORK_VALUES:
            yield
            return
        async with self._place(self._steps, scope):
            yield

    @asynccontextmanager
    async def _place(self, places: Places, scope: Scope) -> AsyncIterator[None]:
        self._under_way += 1
        try:
            async with places.place(_connection(scope)):
                yield
        finally:
            self._under_way -= 1

    def stop(self) -> None:
        """Ends the thread once its present work is done. What waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def cost_of(values: int, size_bytes: int) -> int:
    """Returns what a body costs, in values: a KiB of text takes no longer than a value."""
    return values + (size_bytes >> 10)


def _connection(scope: Scope) -> str:
    host, port = scope.get("client") or ("", 0)
    return f"{host}:{port}"
