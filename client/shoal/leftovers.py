"""Ends what drops left behind: parts of queues on slices that were away, or refused, when the homes dropped the queues;
or on all other slices, where it is not known whether the home dropped the queue.

A place is one slice, and one home of the queues that have parts there: only these two are needed to end such parts. So
each place is asked by itself, some queues at a time, and one that does not answer delays no other. One where nothing
succeeds is asked less and less often. Parts beyond PARTS_LEFT_MAX are left to `shoal sweep`. Not here: what a drop
asks, and what its caller is told (dropping.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import islice
from random import random
from typing import Any

from shoal.core.backoff import Backoff
from shoal.core.known_queues import same_life
from shoal.core.refusals import no_such_queue
from shoal.core.requests import Conditions, DropsRequest
from shoal.homes import Homes
from shoal.limits import (
    LEFTOVERS_AT_ONCE_MAX,
    PARTS_LEFT_AGAIN_S,
    PARTS_LEFT_AGAIN_S_MAX,
    PARTS_LEFT_ASK_S,
    PARTS_LEFT_MAX,
    PLACES_AT_ONCE_MAX,
)
from shoal.routing import Routing
from shoal.waiting import remaining_s
from shoal_contract.errors import NoSuchQueue, ShoalError

Place = tuple[str, str]
"""A slice that may have parts, and the home of their queues."""


class _Left:
    """Keeps what is to end later at one place, and how long it pauses."""

    __slots__ = ("backoff", "queues")

    def __init__(self) -> None:
        self.queues: dict[bytes, int] = {}
        """Queue -> the number of its newest note. Those that were asked last are last."""
        self.backoff = Backoff(random, PARTS_LEFT_AGAIN_S, PARTS_LEFT_AGAIN_S_MAX)


class Leftovers:
    """Ends parts of lives that are over, at once or later. `deadline`: event loop time."""

    def __init__(self, routing: Routing, homes: Homes) -> None:
        self._routing = routing
        self._homes = homes
        self._left: dict[Place, _Left] = {}
        """Each place is in `_due`, or asked now."""
        self._count = self._notes = 0
        """The number of queues in `_left`: at most PARTS_LEFT_MAX; and how often one was noted."""
        self._due: list[tuple[float, Place]] = []
        """When places are to be asked, and which: a heap. A place that pauses has no task."""
        self._asked = 0
        """The number of places that are asked now, by a task each: at most PLACES_AT_ONCE_MAX."""
        self._look = asyncio.Event()
        """Set when a place was added to `_due`, or is not asked any more."""
        self._beginning = False
        """True while a task begins what is due."""

    async def end(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        """Drops the parts on a slice of queues that their homes do not know, or know in another life. Returns each
        queue's answer: NoSuchQueue if there was no such part, or another error."""
        answers: dict[bytes, Any] = {}
        for some in pieces(queues, LEFTOVERS_AT_ONCE_MAX):
            answers |= await self._end_some(slice_name, some, deadline)
        return answers

    def end_later(self, parts: Iterable[tuple[bytes, Iterable[str]]]) -> None:
        """Ends these parts, (queue, slices), in the background, as soon as slices answer: a queue that is declared anew
        would give its consumers what they keep. A part that its home still knows, in this life, is left alone."""
        for queue, slices in parts:
            home = self._homes.home_of(queue)
            for slice_name in slices:
                self._note(queue, (slice_name, home))
        if self._left and not self._beginning:
            self._beginning = True
            self._routing.in_background("drop", self._begin_due())
        self._look.set()

    def _note(self, queue: bytes, place: Place) -> None:
        left = self._left.get(place)
        if left is None or queue not in left.queues:
            if self._count >= PARTS_LEFT_MAX:
                return
            self._count += 1
        if left is None:
            left = self._left[place] = _Left()
            self._ask_later(place, asyncio.get_running_loop().time())
        self._notes += 1
        left.queues[queue] = self._notes

    def _ask_later(self, place: Place, began: float) -> None:
        """Asks a place after a pause, counted from when its last round began."""
        heappush(self._due, (began + self._left[place].backoff.pause_s(), place))

    async def _begin_due(self) -> None:
        """Asks places when they are due, so many at a time, until nothing is left."""
        loop = asyncio.get_running_loop()
        try:
            while self._left:
                self._look.clear()
                while (room := self._asked < PLACES_AT_ONCE_MAX) and self._due and self._due[0][0] <= loop.time():
                    _, place = heappop(self._due)
                    self._asked += 1
                    self._routing.in_background("drop", self._end_at(place))
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._due[0][0] if room and self._due else None):
                        await self._look.wait()
        finally:
            self._beginning = False

    async def _end_at(self, place: Place) -> None:
        """Ends what is left at a place. Stops at the first queues that have to wait for another round."""
        loop = asyncio.get_running_loop()
        left, began, again = self._left[place], loop.time(), False
        try:
            while left.queues and not again:
                noted = dict(islice(left.queues.items(), LEFTOVERS_AT_ONCE_MAX))
                for queue, answer in (await self.end(place[0], list(noted), loop.time() + PARTS_LEFT_ASK_S)).items():
                    newest = left.queues.pop(queue)
                    if not may_be_left(answer):
                        left.backoff.reset()
                    if may_be_left(answer) or newest != noted[queue]:  # A drop of a later life may have left a part.
                        left.queues[queue], again = newest, True
                    else:
                        self._count -= 1
        finally:
            self._asked -= 1
            if left.queues:
                self._ask_later(place, began)
            else:
                del self._left[place]
            self._look.set()

    async def _end_some(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        """Looks at the parts first and asks the homes after that, so that parts of a newer life, which the home knows
        by then, are left alone."""
        try:
            remaining_s(deadline, f"question to slice {slice_name}")
        except ShoalError as error:
            return dict.fromkeys(queues, error)
        answers: dict[bytes, Any] = {queue: no_such_queue(queue) for queue in queues}
        parts: dict[bytes, int] = {}
        described = await self._routing.describing.describe(slice_name, queues, deadline)
        for queue, part in zip(queues, described, strict=True):
            if isinstance(part, ShoalError):
                answers[queue] = part
            elif part.exists:
                parts[queue] = part.incarnation
        try:
            lives = await self._homes.lives_of(list(parts), deadline)
        except ShoalError as error:
            return answers | dict.fromkeys(parts, error)
        ended = {
            queue: incarnation
            for queue, incarnation in parts.items()
            if (life := lives[queue]) is None or not same_life(life.incarnation, incarnation)
        }
        return answers | await self._drop(slice_name, ended, deadline)

    async def _drop(self, slice_name: str, lives: dict[bytes, int], deadline: float) -> dict[bytes, Any]:
        """Drops parts of these lives (queue -> incarnation), at most LEFTOVERS_AT_ONCE_MAX, in one request."""
        if not lives:
            return {}
        queues, incarnations = list(lives), list(lives.values())
        request = DropsRequest(queues, incarnations if any(incarnations) else (), deadline, Conditions())
        (answer,) = await self._routing.ask([(slice_name, request)])
        each = [answer] * len(queues) if isinstance(answer, ShoalError) else answer
        return dict(zip(queues, each, strict=True))


def may_be_left(answer: object) -> bool:
    """Returns whether a slice, by its answer to a drop, may have a part that is to end."""
    return isinstance(answer, ShoalError) and not isinstance(answer, NoSuchQueue)


def pieces(queues: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Returns the queues in order, `size` at a time."""
    return (queues[start : start + size] for start in range(0, len(queues), size))
