"""Bounds how many pulls, peeks and lists ask slices at a time: each needs a place, and places are given in turn.

Answers of slices are in memory before any of them can be refused, so the number of requests is bounded. A place is
given back when its answer is made, or after a time without one: a silent slice must not hold up pulls from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from shoal_contract.errors import ResourceExhausted
from shoal_ops.http import limits


class Takes:
    """Gives out a bounded number of places. `len`: how many are taken. `has_room`: whether callers have read enough of
    earlier answers for another."""

    def __init__(self, places: int, waiting_max: int, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._places = asyncio.Semaphore(places)
        self._waiting_max = waiting_max
        self._waiting = 0
        self._taken = 0
        self._calls = 0
        """The number of calls within `call`."""

    def __len__(self) -> int:
        return self._taken

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call that asks for places again and again, and waits in between: so all of them together leave room
        for other requests. Raises ResourceExhausted where as many as may wait are under way."""
        if self._calls >= self._waiting_max:
            raise _too_many(self._calls + 1, self._waiting_max)
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    @asynccontextmanager
    async def place(self) -> AsyncIterator[int]:
        """Waits for a place. Yields how many bytes of bodies to ask for: fewer where others wait too.

        Raises ResourceExhausted where too many wait, or where the wait is too long.
        """
        crowded = self._places.locked() or not self._has_room()
        place = await self._place()
        late = asyncio.get_running_loop().call_later(limits.TAKE_PATIENCE_S, place.leave)
        try:
            yield limits.PULL_BYTES_CROWDED if crowded else limits.PULL_BYTES_MAX
        finally:
            late.cancel()
            place.leave()

    async def _place(self) -> _Place:
        if self._waiting >= self._waiting_max:
            raise _too_many(self._waiting + 1, self._waiting_max)
        self._waiting += 1
        try:
            async with asyncio.timeout(limits.DEADLINE_S):
                await self._places.acquire()
                place = _Place(self)
                try:
                    await self._until_room()
                except BaseException:
                    place.leave()
                    raise
        except TimeoutError:
            raise ResourceExhausted(
                f"no room for more messages in {limits.DEADLINE_S:g} s: answers to others are not read",
                subject="unread answers",
            ) from None
        finally:
            self._waiting -= 1
        return place

    async def _until_room(self) -> None:
        """Waits until there is room for another answer. Readers that make no progress are cut off meanwhile."""
        while not self._has_room():  # noqa: ASYNC110 - connections do not signal
            await asyncio.sleep(limits.ROOM_LOOK_S)

    def count(self, more: int) -> None:
        self._taken += more
        if more < 0:
            self._places.release()


def _too_many(value: int, limit: int) -> ResourceExhausted:
    what = "requests for messages or lists that wait"
    return ResourceExhausted(f"{what}: {value}; the limit is {limit}", subject=what, limit=limit, value=value)


class _Place:
    """Stands for a place that is taken; `leave` gives it back, once."""

    def __init__(self, takes: Takes) -> None:
        self._takes: Takes | None = takes
        takes.count(1)

    def leave(self) -> None:
        takes, self._takes = self._takes, None
        if takes is not None:
            takes.count(-1)
