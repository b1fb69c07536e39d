"""The inbox: one or thousands of queues consumed through one bounded buffer, over all slices.

Belongs here: which queues and slices, the buffer, handing out. Not here: one slice's part (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType

from shoal.cluster_map import ClusterMap
from shoal.inbox_slice import InboxSlice
from shoal.limits import CLOSE_S, CONSUME_QUEUES_MAX, MESSAGES_PER_TURN_MAX
from shoal.messages import Delivery, Message
from shoal.routing import Routing
from shoal.waiting import deadline_exceeded, no_such_queue
from shoal_contract.errors import ResourceExhausted, ShoalError, Unavailable
from shoal_contract.names import Name, direct_key, encode_name
from shoal_contract.wire import slice_pb2 as wire


class Inbox:
    """Use with `async with`, then `async for message in inbox` or `async for delivery in inbox.deliveries()`.

    At least once: what was not acked when the inbox closes is delivered again, here or elsewhere.
    """

    def __init__(
        self,
        routing: Routing,
        queues: Sequence[bytes],
        window: wire.Attach,
        buffer_bytes: int,
        drop_repeats: bool,
        deadline_s: float,
    ) -> None:
        self._routing = routing
        self._first_queues = queues
        self._window = window
        self._buffer_bytes_max = buffer_bytes
        self._drop_repeats = drop_repeats
        self._deadline_s = deadline_s
        self._queues: dict[int, bytes] = {}
        """Handle -> queue. A handle is never used twice."""
        self._handles: dict[bytes, int] = {}
        self._last_handle = 0
        self._slices: dict[str, InboxSlice] = {}
        self._buffer: deque[tuple[Delivery, int]] = deque()
        """Deliveries with their size in bytes, `_buffer_bytes` together."""
        self._buffer_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        self._unlisten: Callable[[], None] = lambda: None
        self._current: Iterator[Message] = iter(())
        self._turn = 0

    async def __aenter__(self) -> Inbox:
        if self._closed:
            raise Unavailable("inbox is closed; ask the broker for another one", subject="inbox")
        self._unlisten = self._routing.map.listen(self._follow)
        try:
            self._follow(self._routing.map.current)
            await self._attach(self._first_queues, self._deadline_s)
        except BaseException:
            await self._close(flush_s=0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Sends what was acked, waiting at most CLOSE_S, and leaves. Iterations end."""
        await self._close(CLOSE_S)

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Message:
        """The next message, of any queue. Raises what a slice refuses the inbox with."""
        message = next(self._current, None)
        while message is None:
            delivery = await self._next()
            if delivery is None:
                raise StopAsyncIteration
            self._current = delivery.messages()
            message = next(self._current, None)
        self._turn += 1
        if self._turn >= MESSAGES_PER_TURN_MAX:
            self._turn = 0
            await asyncio.sleep(0)
        return message

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Batches as they come. Don't mix with `async for message`: each message goes to one of the two."""
        while (delivery := await self._next()) is not None:
            yield delivery

    async def attach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Adds queues. Raises InvalidName, NoSuchQueue, DeadlineExceeded, ResourceExhausted."""
        names = [encode_name(queue, "queue") for queue in queues]
        await self._attach(names, self._deadline_s if deadline_s is None else deadline_s)

    async def detach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Removes queues; what they have unacked is delivered again elsewhere. Unknown ones are left so."""
        deadline = self._deadline(self._deadline_s if deadline_s is None else deadline_s)
        names = [encode_name(queue, "queue") for queue in queues]
        try:
            async with asyncio.timeout_at(deadline):
                await self.flush()
        except TimeoutError:
            raise deadline_exceeded("acks before detach") from None
        handles = [self._handles.pop(name) for name in names if name in self._handles]
        for handle in handles:
            del self._queues[handle]
        if handles:
            for part in list(self._slices.values()):
                await part.detach(handles, deadline)

    @property
    def buffered_bytes(self) -> int:
        """What waits to be read, about."""
        return self._buffer_bytes

    def ack(self, *messages: Message | Delivery) -> None:
        """As each one's `ack`."""
        for message in messages:
            message.ack_nowait()

    async def flush(self) -> None:
        """Until the slices have every ack."""
        for part in list(self._slices.values()):
            await part.acks.flush()

    async def _attach(self, queues: Sequence[bytes], deadline_s: float) -> None:
        deadline = self._deadline(deadline_s)
        names = [name for name in dict.fromkeys(queues) if name not in self._handles]
        if len(self._queues) + len(names) > CONSUME_QUEUES_MAX:
            count = len(self._queues) + len(names)
            raise ResourceExhausted(
                f"inbox queues: {count}; the limit is {CONSUME_QUEUES_MAX}",
                subject="inbox queues",
                limit=CONSUME_QUEUES_MAX,
                value=count,
            )
        handles = range(self._last_handle + 1, self._last_handle + 1 + len(names))
        self._last_handle += len(names)
        self._queues.update(zip(handles, names, strict=True))
        self._handles.update(zip(names, handles, strict=True))
        for part in self._slices.values():
            part.attach(handles)
        for part in list(self._slices.values()):
            await part.wait_attached(handles, deadline)
        await self._check_homes(handles, deadline)

    async def _check_homes(self, handles: Sequence[int], deadline: float) -> None:
        """A queue that has no part at its home does not exist. Raises NoSuchQueue, having detached it."""
        owner_of = self._routing.map.current.owner_of
        missing = []
        for handle in handles:
            home = self._slices.get(owner_of(direct_key(self._queues[handle])))
            if home is not None and handle in home.absent:
                missing.append(self._queues[handle])
        if missing:
            await self.detach(*missing, deadline_s=deadline - asyncio.get_running_loop().time())
            raise no_such_queue(missing[0])

    def _deadline(self, deadline_s: float) -> float:
        return asyncio.get_running_loop().time() + deadline_s

    def _follow(self, cluster_map: ClusterMap) -> None:
        """Attaches at slices that are new in the map. One that left the map owns nothing and stays silent."""
        for name in cluster_map.slices:
            if name not in self._slices:
                part = InboxSlice(
                    name,
                    self._routing.map,
                    self._queues,
                    self._window,
                    self._buffer_bytes_max,
                    self._put,
                    self._drop_repeats,
                    self._arrived.set,
                )
                self._slices[name] = part
                self._routing.watched.add(part.session)

    async def _put(self, delivery: Delivery) -> None:
        """Waits while the buffer is full; then this slice's stream is not read."""
        while self._buffer_bytes >= self._buffer_bytes_max and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            return
        size_bytes = delivery.size_bytes
        self._buffer.append((delivery, size_bytes))
        self._buffer_bytes += size_bytes
        self._arrived.set()

    async def _next(self) -> Delivery | None:
        while not self._buffer:
            if self._closed:
                return None
            self._raise_refusal()
            self._arrived.clear()
            await self._arrived.wait()
        delivery, size_bytes = self._buffer.popleft()
        self._buffer_bytes -= size_bytes
        self._room.set()
        return delivery

    def _raise_refusal(self) -> None:
        for part in self._slices.values():
            if part.error is not None:
                raise part.error

    async def _close(self, flush_s: float) -> None:
        """What is buffered is left to be delivered again."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        self._room.set()
        self._unlisten()
        try:
            if flush_s:
                with contextlib.suppress(TimeoutError, ShoalError):
                    async with asyncio.timeout(flush_s):
                        await self.flush()
        finally:
            for part in self._slices.values():
                self._routing.watched.discard(part.session)
                await part.session.close()
