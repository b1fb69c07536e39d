"""Ends what drops left behind: parts of queues on slices that were away, or refused, when the homes dropped the queues.

A place is one slice, and one home of the queues that have parts there: only these two are needed to end such parts. So
each place is asked by itself, some queues at a time, and one that does not answer delays no other. Parts beyond
PARTS_LEFT_MAX are left to `shoal sweep`. Not here: what a drop asks, and what its caller is told (dropping.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from shoal.core.known_queues import same_life
from shoal.core.refusals import no_such_queue
from shoal.core.requests import DropRequest
from shoal.homes import Homes
from shoal.limits import (
    LEFTOVERS_AT_ONCE_MAX,
    PARTS_LEFT_AGAIN_S,
    PARTS_LEFT_ASK_S,
    PARTS_LEFT_MAX,
    PLACES_AT_ONCE_MAX,
)
from shoal.routing import Routing
from shoal.waiting import remaining_s
from shoal_contract.errors import NoSuchQueue, ShoalError
from shoal_contract.wire import slice_pb2 as wire

Place = tuple[str, str]
"""A slice that may have parts, and the home of their queues."""


class Leftovers:
    """Ends parts of lives that are over, at once or later. `deadline`: event loop time."""

    def __init__(self, routing: Routing, homes: Homes) -> None:
        self._routing = routing
        self._homes = homes
        self._left: dict[Place, dict[bytes, None]] = {}
        """The queues whose parts are to end later. The places, and queues, that were asked last are last."""
        self._count = 0
        """The number of parts in `_left`: at most PARTS_LEFT_MAX."""
        self._asked: set[Place] = set()
        """The places that a task asks now."""
        self._tasks = 0
        """The number of tasks: at most PLACES_AT_ONCE_MAX."""

    async def end(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        """Drops the parts on a slice of queues that their homes do not know, or know in another life. Returns each
        queue's answer: NoSuchQueue if there was no such part, or another error."""
        answers: dict[bytes, Any] = {}
        for some in pieces(queues, LEFTOVERS_AT_ONCE_MAX):
            answers |= await self._end_some(slice_name, some, deadline)
        return answers

    def end_later(self, parts: Iterable[tuple[str, bytes]]) -> None:
        """Ends these parts, (slice, queue), in the background, as soon as slices answer: a queue that is declared anew
        would give its consumers what they keep."""
        for slice_name, queue in islice(parts, PARTS_LEFT_MAX - self._count):
            left = self._left.setdefault((slice_name, self._homes.home_of(queue)), {})
            self._count += queue not in left
            left[queue] = None
        for _ in range(self._tasks, min(len(self._left), PLACES_AT_ONCE_MAX)):
            self._tasks += 1
            self._routing.in_background("drop", self._end_left())

    async def _end_left(self) -> None:
        """Takes the places in turn that no other task asks, until there is none."""
        try:
            while place := next((one for one in self._left if one not in self._asked), None):
                self._asked.add(place)
                try:
                    await self._end_at(place)
                finally:
                    self._asked.discard(place)
        finally:
            self._tasks -= 1

    async def _end_at(self, place: Place) -> None:
        """Ends what is left at a place, after a pause. Stops at the first queues that have to wait for another turn."""
        await asyncio.sleep(PARTS_LEFT_AGAIN_S)
        left, again = self._left[place], False
        while left and not again:
            some = list(islice(left, LEFTOVERS_AT_ONCE_MAX))
            deadline = asyncio.get_running_loop().time() + PARTS_LEFT_ASK_S
            for queue, answer in (await self.end(place[0], some, deadline)).items():
                del left[queue]
                if may_be_left(answer):
                    left[queue], again = None, True
                else:
                    self._count -= 1
        del self._left[place]
        if left:
            self._left[place] = left

    async def _end_some(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        """Looks at the parts first and asks the homes after that, so that parts of a newer life, which the home knows
        by then, are left alone."""
        try:
            remaining_s(deadline, f"question to slice {slice_name}")
            answer = await self._routing.session(slice_name).ask(wire.Describe(queues=queues), deadline)
        except ShoalError as error:
            return dict.fromkeys(queues, error)
        answers: dict[bytes, Any] = {queue: no_such_queue(queue) for queue in queues}
        described = zip(queues, answer.description.queues, strict=True)
        parts = {queue: part.incarnation for queue, part in described if part.exists}
        try:
            lives = await self._homes.lives_of(list(parts), deadline)
        except ShoalError as error:
            return answers | dict.fromkeys(parts, error)
        ended = [
            DropRequest(queue, incarnation, deadline)
            for queue, incarnation in parts.items()
            if (life := lives[queue]) is None or not same_life(life.incarnation, incarnation)
        ]
        dropped = await self._routing.ask((slice_name, request) for request in ended)
        return answers | dict(zip((request.queue for request in ended), dropped, strict=True))


def may_be_left(answer: object) -> bool:
    """Returns whether a slice, by its answer to a drop, may have a part that is to end."""
    return isinstance(answer, ShoalError) and not isinstance(answer, NoSuchQueue)


def pieces(queues: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Returns the queues in order, `size` at a time."""
    return (queues[start : start + size] for start in range(0, len(queues), size))
