"""Keeps the queues of a replay: declares them before they are first bound, and consumes them from then on, in batches.

Each queue belongs to one connection, which consumes it. Belongs here: how queues are declared, consumed and dropped.
Not here: memberships (lanes.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from zlib import crc32

from shoal import Broker, Delivery, Inbox
from shoal_ops.limits import ACK_EVERY_S, ACKS_HELD_MAX, DEADLINE_S, QUEUES_AT_ONCE_MAX
from shoal_ops.replay.comparison import Mismatches
from shoal_ops.replay.received import Received
from shoal_runtime.tasks import Tasks


class Population:
    def __init__(self, brokers: Sequence[Broker], tasks: Tasks, received: Received, mismatches: Mismatches) -> None:
        self._brokers = brokers
        self._tasks = tasks
        self._received = received
        self._mismatches = mismatches
        self._inboxes: list[Inbox] = []
        self._held: list[list[Delivery]] = []
        """Deliveries that are received and not acked yet, by connection."""
        self._ready: dict[bytes, asyncio.Future[None] | None] = {}
        """A future for each queue until it is declared; None from then on."""
        self._waiting: list[asyncio.Queue[bytes]] = [asyncio.Queue() for _ in brokers]
        """Queues to declare, by connection. Bounded by STEPS_PENDING_MAX, as each comes from a step."""
        self.arrived = asyncio.Event()
        """Set with each delivery."""

    def __len__(self) -> int:
        return len(self._ready)

    async def open(self, stack: AsyncExitStack) -> None:
        for number, broker in enumerate(self._brokers):
            inbox = await stack.enter_async_context(broker.consume((), drop_repeats=False, deadline_s=DEADLINE_S))
            self._inboxes.append(inbox)
            held: list[Delivery] = []
            self._held.append(held)
            self._tasks.start(f"consume {number}", self._consume(inbox, held))
            self._tasks.start(f"ack {number}", self._ack_often(held))
            self._tasks.start(f"declare {number}", self._declare(broker, inbox, self._waiting[number]))

    async def declared(self, queue: bytes) -> None:
        """Waits until the queue is declared."""
        if queue not in self._ready:
            self._ready[queue] = asyncio.get_running_loop().create_future()
            self._waiting[self._number(queue)].put_nowait(queue)
        if (ready := self._ready[queue]) is not None:
            await ready

    async def flush(self) -> None:
        """Waits until the slices have every ack."""
        for inbox, held in zip(self._inboxes, self._held, strict=True):
            _ack(held)
            await inbox.flush()

    async def check_empty(self) -> None:
        """Checks that each queue's backlog is empty: all it got is acked, and nothing else is left."""
        for broker, queues in self._batches():
            found = await asyncio.gather(*(broker.describe(queue, deadline_s=DEADLINE_S) for queue in queues))
            for queue, description in zip(queues, found, strict=True):
                if description.messages:
                    self._mismatches.add(queue, b"", 0, "left in its backlog", description.messages)

    async def drop(self) -> None:
        for broker, queues in self._batches():
            await asyncio.gather(*(broker.drop(queue, deadline_s=DEADLINE_S) for queue in queues))

    def _number(self, queue: bytes) -> int:
        return crc32(queue) % len(self._brokers)

    def _batches(self) -> Iterator[tuple[Broker, list[bytes]]]:
        queues = list(self._ready)
        for start in range(0, len(queues), QUEUES_AT_ONCE_MAX):
            yield self._brokers[start // QUEUES_AT_ONCE_MAX % len(self._brokers)], queues[start:][:QUEUES_AT_ONCE_MAX]

    async def _declare(self, broker: Broker, inbox: Inbox, waiting: asyncio.Queue[bytes]) -> None:
        async for queues in _gathered(waiting):
            await broker.declare(queues, deadline_s=DEADLINE_S)
            for queue in queues:
                ready, self._ready[queue] = self._ready[queue], None
                if ready is not None and not ready.done():
                    ready.set_result(None)
            await inbox.attach(*queues)

    async def _consume(self, inbox: Inbox, held: list[Delivery]) -> None:
        async for delivery in inbox.deliveries():
            wrong = self._received.add(delivery.key_bytes, delivery.first, delivery.bodies, delivery.queues_bytes)
            for disorder in wrong:
                self._mismatches.add(disorder.queue, disorder.key, disorder.offset, disorder.problem)
            held.append(delivery)
            if len(held) >= ACKS_HELD_MAX:
                _ack(held)
            self.arrived.set()

    async def _ack_often(self, held: list[Delivery]) -> None:
        while True:
            await asyncio.sleep(ACK_EVERY_S)
            _ack(held)


def _ack(held: list[Delivery]) -> None:
    for delivery in held:
        delivery.ack_nowait()
    held.clear()


async def _gathered(waiting: asyncio.Queue[bytes]) -> AsyncIterator[list[bytes]]:
    """Yields the queues that have come, up to QUEUES_AT_ONCE_MAX at a time."""
    while True:
        queues = [await waiting.get()]
        while not waiting.empty() and len(queues) < QUEUES_AT_ONCE_MAX:
            queues.append(waiting.get_nowait())
        yield queues
