"""Lists and drops the parts of queues on slices, and asks the homes about them: for sweeping what drops left behind.

A part is of the life that its queue's home knows, or left from a life that is over. Not here: which parts are dropped
and when (shoal_ops.sweep).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal.broker import Broker
from shoal.core.requests import DropRequest
from shoal.describing import is_too_large
from shoal.homes import life_in
from shoal.transport.methods import LIST_QUEUES
from shoal_contract.errors import NoSuchQueue, ShoalError
from shoal_contract.names import direct_key
from shoal_contract.wire.admin_pb2 import ListQueuesRequest


class Part(NamedTuple):
    """Names a queue's part on a slice. `incarnation` 0: not known (made by a bulk load)."""

    slice: str
    """The slice's name."""
    queue: bytes
    """The queue's name, as bytes."""
    incarnation: int


class Parts:
    """Lists and drops parts over an open broker's connection: `parts = shoal.Parts(broker)`.

    All calls raise DeadlineExceeded, Unavailable, and OutOfRange for a slice that the map does not have.
    """

    def __init__(self, broker: Broker) -> None:
        self._connection = broker.connection
        self._routing = self._connection.routing
        self._calls = self._connection.calls

    @property
    def slices(self) -> tuple[str, ...]:
        """Returns the names of the slices of the current map."""
        return self._routing.map.current.slices

    @property
    def map_version(self) -> int:
        """Returns the version of the current map."""
        return self._routing.map.current.version

    def home_of(self, queue: bytes) -> str:
        """Returns the slice that knows whether the queue exists."""
        return self._routing.map.current.owner_of(direct_key(queue))

    async def page(self, slice_name: str, after: bytes, limit: int, *, deadline_s: float) -> tuple[list[bytes], bytes]:
        """Returns names of queues that have a part on a slice, in order, and the `after` of the next page; empty if
        there is none. Raises OutOfRange for a `limit` outside 1 to 1,000."""
        request = ListQueuesRequest(after=after, limit=limit)
        deadline = self._connection.deadline(deadline_s)
        answer = await self._calls.ask_slice(lambda: slice_name, LIST_QUEUES, request, deadline, admin=True)
        return list(answer.queues), answer.next

    async def look(self, slice_name: str, queues: Sequence[bytes], *, deadline_s: float) -> list[Part]:
        """Returns the parts of these queues that a slice has now; at most 1,000 queues. A part that is too large to be
        described is left out: the log tells. Raises the first error of another one."""
        deadline = self._connection.deadline(deadline_s)
        parts: list[Part] = []
        for queue, one in zip(
            queues, await self._routing.describing.describe(slice_name, queues, deadline), strict=True
        ):
            if isinstance(one, ShoalError):
                if not is_too_large(one):
                    raise one
            elif (life := life_in(one)) is not None:
                parts.append(Part(slice_name, queue, life.incarnation))
        return parts

    async def at_homes(self, queues: Sequence[bytes], *, deadline_s: float) -> dict[bytes, int | None]:
        """Returns the incarnation that each queue's home knows now; 0 if it knows none, None if there is no queue.
        Raises the error of the first home that does not answer."""
        lives = await self._connection.homes.lives_of(queues, self._connection.deadline(deadline_s))
        return {queue: None if life is None else life.incarnation for queue, life in lives.items()}

    async def drop(self, part: Part, *, deadline_s: float) -> bool:
        """Drops exactly this part, and none of another life. Returns whether it was there. Raises what the slice
        refuses it with."""
        request = DropRequest(part.queue, part.incarnation, self._connection.deadline(deadline_s))
        (result,) = await self._routing.ask([(part.slice, request)])
        if isinstance(result, ShoalError) and not isinstance(result, NoSuchQueue):
            raise result
        return not isinstance(result, NoSuchQueue)
