"""Knows which owners have a read at work that takes long: what they ask for behind it would keep its room meanwhile.
That waits here, without room."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial

from shoal_slice_node.adapters.limits import ADMITTED_AT_ONCE_MAX
from shoal_slice_node.core.turns import Source


class LongWork:
    """Counts, for each owner, reads that are not quick and were begun, and that its later work waits for."""

    def __init__(self) -> None:
        self._counts = Counter[Source]()
        self._waiting: dict[Source, deque[Callable[[], None]]] = {}

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._counts)

    def begin(self, source: Source) -> None:
        """Notes that one more stands in the owner's line of work."""
        self._counts[source] += 1

    def end(self, source: Source) -> None:
        """Notes that one is done. Nothing happens if the owner was forgotten. What waited for the last one goes on, in
        its order; behind the first ADMITTED_AT_ONCE_MAX in the next turn of the event loop."""
        self._counts[source] -= 1
        if self._counts[source] <= 0:
            del self._counts[source]
            self._go_on(source)

    def _go_on(self, source: Source) -> None:
        waiting = self._waiting.get(source)
        for _ in range(ADMITTED_AT_ONCE_MAX):
            if not waiting or source in self._counts:
                break
            waiting.popleft()()
        if not waiting:
            self._waiting.pop(source, None)
        elif source not in self._counts:
            asyncio.get_running_loop().call_soon(self._go_on, source)

    def forget(self, source: Source) -> None:
        """Forgets those of an owner that is gone, and what waited for them."""
        self._counts.pop(source, None)
        self._waiting.pop(source, None)

    def has(self, source: Source) -> bool:
        """Returns whether there is one."""
        return source in self._counts

    def when_over(self, source: Source, go_on: Callable[[], None]) -> None:
        """Calls `go_on` once there is none; there is one now."""
        self._waiting.setdefault(source, deque()).append(go_on)

    async def over(self, source: Source) -> None:
        """Waits until there is none; there is one now."""
        is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_over(source, partial(_set, is_over))
        await is_over


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
