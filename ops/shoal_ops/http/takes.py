"""Places for answers with messages in them: so many pulls, and so many peeks, ask slices at a time, in turn.

What slices answer is in memory before anything can be refused, so it is bounded by who may ask. A place is given back
when its answer is made, or after a time without one: a slice that is silent must not hold up pulls from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from shoal_contract.errors import ResourceExhausted
from shoal_ops.http import limits


class Takes:
    """`len` is how many have a place. `has_room`: whether earlier answers are read well enough for another."""

    def __init__(self, places: int, waiting_max: int, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._places = asyncio.Semaphore(places)
        self._waiting_max = waiting_max
        self._waiting = 0
        self._taken = 0

    def __len__(self) -> int:
        return self._taken

    @asynccontextmanager
    async def place(self) -> AsyncIterator[int]:
        """Waits for a place. Yields how many bytes of bodies to ask for: less where others wait too.

        Raises ResourceExhausted where too many wait, or for too long.
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
            what = "requests for messages that wait"
            problem = f"{what}: {self._waiting + 1}; the limit is {self._waiting_max}"
            raise ResourceExhausted(problem, subject=what, limit=self._waiting_max, value=self._waiting + 1)
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
        """Readers that do not get on are cut off meanwhile."""
        while not self._has_room():  # noqa: ASYNC110 - connections do not tell
            await asyncio.sleep(limits.ROOM_LOOK_S)

    def count(self, more: int) -> None:
        self._taken += more
        if more < 0:
            self._places.release()


class _Place:
    """Given back once."""

    def __init__(self, takes: Takes) -> None:
        self._takes: Takes | None = takes
        takes.count(1)

    def leave(self) -> None:
        takes, self._takes = self._takes, None
        if takes is not None:
            takes.count(-1)
