"""Declares, purges and describes whole queues: a queue with parts on several slices is one queue here.

The home slice (owner of the direct key) knows whether a queue exists, and in which life. A part elsewhere that is of
another life, or of a queue that its home does not know, was left behind by a drop: it is ignored here.
Not here: binding (binding_calls.py), dropping (dropping.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.core.known_queues import KnownQueues, Life
from shoal.core.merging import merge_descriptions
from shoal.core.refusals import no_queue_to_end
from shoal.core.requests import DeclareRequest, PurgeRequest
from shoal.homes import Homes
from shoal.limits import DECLARES_AT_ONCE_MAX, PURGES_AT_ONCE_MAX
from shoal.messages import QueueDescription
from shoal.routing import Routing
from shoal_contract.errors import NoSuchQueue, ShoalError
from shoal_contract.names import Name, show
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire


class QueueCalls:
    """Declares, purges and describes queues. `deadline`: event loop time.

    All calls raise DeadlineExceeded (outcome unknown) besides the errors that they name.
    """

    def __init__(self, routing: Routing, homes: Homes, known: KnownQueues) -> None:
        self._routing = routing
        self._homes = homes
        self._known = known

    async def declare(self, queues: Sequence[bytes], options: QueueOptions, deadline: float) -> None:
        """Declares queues. Raises Conflict where one exists with other options; the other queues are declared."""
        first_error: ShoalError | None = None
        for start in range(0, len(queues), DECLARES_AT_ONCE_MAX):
            some = queues[start : start + DECLARES_AT_ONCE_MAX]
            homes = [self._homes.home_of(queue) for queue in some]
            requests = [DeclareRequest(queue, options, 0, deadline) for queue in some]
            results = await self._routing.ask(zip(homes, requests, strict=True))
            now = asyncio.get_running_loop().time()
            for queue, home, result in zip(some, homes, results, strict=True):
                if isinstance(result, ShoalError):
                    first_error = first_error or result
                else:
                    self._known.declared(queue, Life(options, result[0]), home, now)
        if first_error is not None:
            raise first_error

    async def purge_all(
        self, queues: Sequence[bytes], deadline: float
    ) -> tuple[dict[bytes, int], dict[bytes, ShoalError]]:
        """Purges each queue by itself. Returns how many messages were dropped, by queue, and the errors of the rest."""
        purged: dict[bytes, int] = {}
        failed: dict[bytes, ShoalError] = {}

        async def one(queue: bytes) -> None:
            try:
                purged[queue] = await self.purge(queue, deadline)
            except ShoalError as error:
                failed[queue] = error

        for start in range(0, len(queues), PURGES_AT_ONCE_MAX):
            await asyncio.gather(*(one(queue) for queue in queues[start : start + PURGES_AT_ONCE_MAX]))
        return purged, failed

    async def purge(self, queue: bytes, deadline: float) -> int:
        """Purges every slice that has a part, in as many requests as needed. Returns how many messages were dropped.

        Raises NoSuchQueue if the home has no such queue. If a slice does not answer, the messages of the others are
        dropped, and the error says so.
        """
        slices = self._routing.map.current.slices
        parts = await asyncio.gather(*(self._purge_part(name, queue, deadline) for name in slices))
        dropped = sum(part for part in parts if isinstance(part, int))
        home = parts[slices.index(self._homes.home_of(queue))]
        if isinstance(home, NoSuchQueue):
            raise no_queue_to_end(queue)
        for name, part in zip(slices, parts, strict=True):
            if isinstance(part, ShoalError) and not isinstance(part, NoSuchQueue):
                what = f"purge of queue {show(queue)}: {dropped} messages were dropped, but slice {name} failed"
                raise type(part)(f"{what}: {part.message}", subject=show(queue))
        return dropped

    async def _purge_part(self, slice_name: str, queue: bytes, deadline: float) -> int | ShoalError:
        position = dropped = 0
        while True:
            (result,) = await self._routing.ask([(slice_name, PurgeRequest(queue, position, deadline))])
            if isinstance(result, ShoalError):
                return result
            dropped += int(result[0])
            position = result[1]
            if not position:
                return dropped

    async def describe(self, name: Name, queue: bytes, bindings: bool, deadline: float) -> QueueDescription:
        """Returns exact counts, so it needs every slice; for a queue that its home does not have, only the home."""
        slices = self._routing.map.current.slices
        home = slices.index(self._homes.home_of(queue))
        question = wire.Describe(queues=[queue], bindings=bindings)
        asked = [asyncio.ensure_future(self._ask_part(slice_name, question, deadline)) for slice_name in slices]
        try:
            at_home = await asked[home]
            if isinstance(at_home, wire.QueueDescription) and not at_home.exists:
                return merge_descriptions(name, [at_home], at_home)
            parts = await asyncio.gather(*asked)
        finally:
            for part in asked:
                part.cancel()
        for slice_name, found in zip(slices, parts, strict=True):
            if isinstance(found, ShoalError):
                what = f"describe of queue {show(queue)} needs every slice, and slice {slice_name} failed"
                raise type(found)(f"{what}: {found.message}", subject=show(queue))
        found_parts = [part for part in parts if isinstance(part, wire.QueueDescription)]
        return merge_descriptions(name, found_parts, found_parts[home])

    async def _ask_part(
        self, slice_name: str, question: wire.Describe, deadline: float
    ) -> wire.QueueDescription | ShoalError:
        try:
            return (await self._routing.looks.describe(slice_name, question, deadline)).queues[0]
        except ShoalError as error:
            return error
