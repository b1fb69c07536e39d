"""Drops a queue at its home first, then everywhere else, in one life; and drops what earlier drops left behind.

The queue is gone once its home has dropped it: no slice is given a new part of that life (binding_calls.py asks the
home after it made one). A drop that stops between the home and the others leaves parts; `shoal sweep` finds them, and
so does dropping the queue again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from shoal.core.known_queues import KnownQueues, Life, same_life
from shoal.core.refusals import no_such_queue
from shoal.core.requests import DropRequest
from shoal.homes import Homes, life_in
from shoal.routing import Routing
from shoal_contract.errors import NoSuchQueue, ShoalError
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire


class Dropping:
    """Drops queues. `deadline`: event loop time."""

    def __init__(self, routing: Routing, homes: Homes, known: KnownQueues) -> None:
        self._routing = routing
        self._homes = homes
        self._known = known

    async def drop(self, queue: bytes, deadline: float) -> None:
        """Raises NoSuchQueue if there is no part; if a slice does not answer, an error that says what is left."""
        home = self._homes.home_of(queue)
        others = [name for name in self._routing.map.current.slices if name != home]
        life = self._known.life_of(queue, asyncio.get_running_loop().time())
        self._known.forget(queue)
        if life is None or not life.incarnation or not await self._dropped_at(home, queue, life, deadline):
            # The life was not known, or the queue has another one now.
            life = await self._homes.life_of(queue, deadline)
            if life is None:
                await self._drop_leftovers(queue, others, deadline)
                return
            if not await self._dropped_at(home, queue, life, deadline):
                raise no_such_queue(queue)  # Another client dropped it just now.
        requests = [(name, DropRequest(queue, life.incarnation, deadline)) for name in others]
        _raise_what_is_left(queue, others, await self._routing.ask(requests))

    async def _dropped_at(self, home: str, queue: bytes, life: Life, deadline: float) -> bool:
        (result,) = await self._routing.ask([(home, DropRequest(queue, life.incarnation, deadline))])
        if isinstance(result, NoSuchQueue):
            return False
        if isinstance(result, ShoalError):
            raise result
        return True

    async def _drop_leftovers(self, queue: bytes, others: Sequence[str], deadline: float) -> None:
        """Drops the parts of a queue that its home does not know. Looks at the parts first and asks the home again
        after that, so that parts of a newer life, which the home knows by then, are left alone."""
        found = await asyncio.gather(*(self._part_at(name, queue, deadline) for name in others))
        parts = {name: part for name, part in zip(others, found, strict=True) if isinstance(part, Life)}
        life = await self._homes.life_of(queue, deadline) if parts else None
        ended = {
            name: part
            for name, part in parts.items()
            if life is None or not same_life(life.incarnation, part.incarnation)
        }
        requests = [(name, DropRequest(queue, part.incarnation, deadline)) for name, part in ended.items()]
        results = await self._routing.ask(requests)
        _raise_what_is_left(queue, [*others, *ended], [*found, *results])
        if all(isinstance(result, NoSuchQueue) for result in results):
            raise no_such_queue(queue)

    async def _part_at(self, slice_name: str, queue: bytes, deadline: float) -> Life | ShoalError | None:
        try:
            answer = await self._routing.session(slice_name).ask(wire.Describe(queues=[queue]), deadline)
        except ShoalError as error:
            return error
        return life_in(answer.description.queues[0])


def _raise_what_is_left(queue: bytes, slices: Sequence[str], results: Sequence[Any]) -> None:
    failed = {
        name: result
        for name, result in zip(slices, results, strict=True)
        if isinstance(result, ShoalError) and not isinstance(result, NoSuchQueue)
    }
    if failed:
        where, first = ", ".join(failed), next(iter(failed.values()))
        raise type(first)(
            f"queue {show(queue)} is dropped, but slice {where} did not say so of its part ({first.message}): what is"
            " left there is found by `shoal sweep`, or by dropping the queue again",
            subject=show(queue),
        )
