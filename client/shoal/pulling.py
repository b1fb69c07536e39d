"""Batch dequeue without attaching: pull and peek over a queue's slices, and the acks of what was pulled."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.acks import AckSender
from shoal.limits import PULL_BYTES_MAX
from shoal.messages import Delivery, Message
from shoal.routing import Routing
from shoal.slice_session import SliceSession
from shoal.waiting import no_such_queue
from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import NoSuchQueue, ShoalError
from shoal_contract.wire import slice_pb2 as wire


class PullAcker:
    """Acker of what was pulled from one slice; its consumers are names of queues."""

    def __init__(self, session: SliceSession) -> None:
        self._error: ShoalError | None = None
        self._acks = AckSender(session, self._failed)

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        self._acks.add(delivery.key_bytes, first, end, consumers)

    def queue_of(self, consumer: int | bytes) -> bytes:
        assert isinstance(consumer, bytes), "pulled messages have no handles"
        return consumer

    async def flush(self) -> None:
        """Until the slice has every ack. Raises what it refused one with, once."""
        await self._acks.flush()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _failed(self, error: ShoalError) -> None:
        self._error = error


class Pulling:
    """Slices are asked one after the other, another one first each time, until there is enough."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._ackers: dict[str, PullAcker] = {}
        """By slice."""
        self._turn = 0

    async def pull(self, queue: bytes, messages_max: int, lease_ms: int, peek: bool, deadline: float) -> list[Message]:
        names = self._routing.map.current.slices
        self._turn += 1
        messages: list[Message] = []
        missing = 0
        for index in range(len(names)):
            left = messages_max - len(messages)
            if left <= 0:
                break
            name = names[(self._turn + index) % len(names)]
            pull = wire.Pull(queue=queue, messages_max=left, bytes_max=PULL_BYTES_MAX, lease_ms=lease_ms, peek=peek)
            try:
                messages += await self._pull_from(name, pull, deadline)
            except NoSuchQueue:
                missing += 1  # No part there.
        if missing == len(names):
            raise no_such_queue(queue)
        return messages

    async def flush(self) -> None:
        for acker in list(self._ackers.values()):
            await acker.flush()

    async def _pull_from(self, slice_name: str, pull: wire.Pull, deadline: float) -> list[Message]:
        session = self._routing.session(slice_name)
        answer = await session.ask(pull, deadline)
        acker = self._ackers.get(slice_name)
        if acker is None:
            acker = self._ackers[slice_name] = PullAcker(session)
        messages: list[Message] = []
        for item in answer.pulled.deliveries:
            first: int = item.low
            delivery = Delivery(item, first, item.to, parse_chunk(item.chunk), (pull.queue,), acker)
            messages += delivery.messages()
        return messages
