"""Bounds how many pulls, peeks and lists ask slices at a time: each needs a place, and places are given in turn.

Answers of slices are in memory before any of them can be refused, so the number of requests is bounded. A place is
given back when its answer is made, or after a time without one: a silent slice must not hold up pulls from the others.
What they ask for, such as a queue, has turns, and no queue has all places: however many ask for one that takes long,
those that ask for others wait for one place. Where too many wait, those give way that most others ask the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from shoal_contract.errors import ResourceExhausted
from shoal_ops.http import limits
from shoal_runtime.places import Places, PlacesLimits

WAITING = "requests for messages or lists that wait"


class Takes:
    """Gives out a bounded number of places, at least two. `len`: how many are taken. `has_room`: whether callers have
    read enough of earlier answers for another."""

    def __init__(self, places: int, waiting_max: int, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._places_max = places
        self._each_max = places - 1
        """The number of places of what is asked for, such as one queue."""
        self._places = Places(WAITING, PlacesLimits(places, self._each_max, waiting_max, waiting_max - 1))
        self._waiting_max = waiting_max
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
    async def place(self, about: str) -> AsyncIterator[int]:
        """Waits for a place. `about`: names what is asked for. Yields how many bytes of bodies to ask for: fewer where
        it had to wait, or others wait, for what it asks or for something else.

        Raises ResourceExhausted where too many wait, or where the wait is too long.
        """
        crowded = self._full_for(about) or not self._has_room()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(limits.DEADLINE_S):
                    leave = await stack.enter_async_context(self._places.place(about))
                    leave = self._counted(leave)
                    stack.callback(leave)
                    await self._until_room()
            except ResourceExhausted as error:
                raise _too_many(error.value, error.limit) from None
            except TimeoutError:
                raise ResourceExhausted(
                    f"no room for more messages in {limits.DEADLINE_S:g} s: answers to others are not read",
                    subject="unread answers",
                ) from None
            late = asyncio.get_running_loop().call_later(limits.TAKE_PATIENCE_S, leave)
            stack.callback(late.cancel)
            yield limits.PULL_BYTES_CROWDED if crowded or self._places.waiting else limits.PULL_BYTES_MAX

    def _full_for(self, about: str) -> bool:
        """Returns whether a call waits for a place now: all are taken, or what it asks for has all that it may have."""
        return self._taken == self._places_max or self._places.held(about) == self._each_max

    def _counted(self, leave: Callable[[], None]) -> Callable[[], None]:
        """Counts a place as taken. Returns what gives it back, once."""
        self._taken += 1
        left = False

        def counted() -> None:
            nonlocal left
            if not left:
                left = True
                self._taken -= 1
                leave()

        return counted

    async def _until_room(self) -> None:
        """Waits until there is room for another answer. Readers that make no progress are cut off meanwhile."""
        while not self._has_room():  # noqa: ASYNC110 - connections do not signal
            await asyncio.sleep(limits.ROOM_LOOK_S)


def _too_many(value: int, limit: int) -> ResourceExhausted:
    return ResourceExhausted(f"{WAITING}: {value}; the limit is {limit}", subject=WAITING, limit=limit, value=value)
