"""A session that consumes many queues: it attaches them, checks that nothing is missing, and acks everything, gathered.

Belongs here: positions per key and queue. Not here: what arrived (a callback looks at it).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import CONSUMER_WINDOW_BYTES, CONSUMER_WINDOW_MESSAGES
from shoal_loadtest.load_session import LoadSession
from shoal_runtime.tasks import Tasks

Delivered = Callable[[wire.Delivery], None]


class ConsumingSession:
    """Consumes queues. Use as `async with ConsumingSession(...) as consumer:`. `deliveries`: messages times queues,
    without repeats."""

    def __init__(self, address: str, queues: Sequence[bytes], delivered: Delivered | None = None) -> None:
        self._session = LoadSession(address, self._take, CONSUMER_WINDOW_BYTES)
        self._queues = queues
        self._delivered = delivered
        self._next: defaultdict[bytes, dict[int, int]] = defaultdict(dict)
        """The offset that must come next, by key and handle."""
        self._news: set[bytes] = set()
        self._wake = asyncio.Event()
        self._tasks = Tasks("consuming session")
        self.deliveries = 0
        self.repeats = 0

    async def __aenter__(self) -> ConsumingSession:
        await self._session.__aenter__()
        attach = wire.Attach(
            queues=self._queues,
            handles=range(1, len(self._queues) + 1),
            window_messages=CONSUMER_WINDOW_MESSAGES,
            window_bytes=CONSUMER_WINDOW_BYTES,
        )
        answer = await self._session.ask(wire.SessionRequest(attach=attach).SerializeToString())
        if answer.attached.absent:
            raise BenchFailed(f"{len(answer.attached.absent)} queues to attach do not exist")
        self._acker = self._tasks.start("ack", self._ack(), awaited=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()
        await self._session.__aexit__(kind, error, trace)

    @property
    def failure(self) -> BaseException | None:
        """Returns why the session ended, if it did."""
        if self._acker.done() and not self._acker.cancelled():
            return self._acker.exception()
        return self._session.failure

    def _take(self, deliveries: Sequence[wire.Delivery]) -> None:
        for delivery in deliveries:
            low, to = delivery.low, delivery.to
            expected = self._next[delivery.key]
            fresh = 0
            for handle in delivery.handles:
                position = expected.get(handle, low)
                if position < low:
                    raise BenchFailed(f"offsets {position} to {low} were never delivered to handle {handle}")
                if to > position:
                    expected[handle] = to
                    fresh += to - position
            self.deliveries += fresh
            self.repeats += (to - low) * len(delivery.handles) - fresh
            self._news.add(delivery.key)
            if self._delivered is not None:
                self._delivered(delivery)
        self._wake.set()

    async def _ack(self) -> None:
        """Sends acks for ever, one frame under way at a time: acks that come meanwhile are gathered for the next."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            news, self._news = self._news, set()
            acks: list[wire.Ack] = []
            for key in news:
                handles_at: defaultdict[int, list[int]] = defaultdict(list)
                for handle, position in self._next[key].items():
                    handles_at[position].append(handle)
                acks += [wire.Ack(key=key, to=to, handles=handles) for to, handles in handles_at.items()]
            await self._session.ask(wire.SessionRequest(acks=wire.Acks(acks=acks)).SerializeToString())
