"""Consumes one or thousands of queues through one bounded buffer, over all slices: the inbox.

Belongs here: which queues and slices, the buffer, handing out messages. Not here: one slice's part (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType

from shoal.core.cluster_map import ClusterMap
from shoal.core.refusals import acks_lacking, deadline_exceeded, no_such_queue
from shoal.inbox_slice import InboxSlice
from shoal.limits import (
    ATTACH_OTHERS_S,
    CLOSE_S,
    CONSUME_QUEUES_MAX,
    INBOX_EXCESS_BYTES,
    MESSAGES_PER_TURN_MAX,
    WINDOW_LOOK_S,
)
from shoal.messages import Delivery, Message, check_acked
from shoal.routing import Routing
from shoal_contract.arguments import DEADLINE_S, check_delay_ms
from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.limits import WINDOW_MESSAGES_DEFAULT
from shoal_contract.names import Name, direct_key, encode_name, show
from shoal_contract.wire import slice_pb2 as wire

_log = logging.getLogger("shoal")


class Inbox:
    """Hands out the messages of its queues. Use with `async with`, then `async for message in inbox` or
    `async for delivery in inbox.deliveries()`.

    Delivers at least once: messages not acked when the inbox closes are delivered again, here or elsewhere.
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
        """Deliveries with their sizes in bytes, which add up to `_buffer_bytes`."""
        self._buffer_bytes = 0
        self._answers_awaited = 0
        """The number of calls that wait for an answer. Answers come behind deliveries, so the buffer may exceed its
        bound for these calls."""
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        self._unlisten: Callable[[], None] = lambda: None
        self._current: Iterator[Message] = iter(())
        self._turn = 0
        self._idle = False
        """True if nothing came since the last look at the windows."""
        self._look: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Inbox:
        if self._closed:
            raise Unavailable("the inbox is closed; ask the broker for another one", subject="inbox")
        self._unlisten = self._routing.map.listen(self._follow)
        try:
            self._follow(self._routing.map.current)
            await self._attach(self._first_queues, self._deadline(None))
        except BaseException:
            self._end()
            raise
        self._look_later()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Sends the acks given so far, waiting at most CLOSE_S, and closes the inbox. Iterations end."""
        if self._closed:
            return
        self._closed = True
        self._arrived.set()
        self._room.set()
        try:
            with contextlib.suppress(ShoalError):
                await self._flush(asyncio.get_running_loop().time() + CLOSE_S)
        finally:
            self._end()
        await asyncio.gather(*(part.session.close() for part in self._slices.values()))

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> Message:
        """Returns the next message of any queue. Raises the error of a slice that refuses the inbox. If cancelled, it
        takes no message."""
        self._turn += 1
        if self._turn >= MESSAGES_PER_TURN_MAX:
            self._turn = 0
            await asyncio.sleep(0)
        message = next(self._current, None)
        while message is None:
            delivery = await self._next()
            if delivery is None:
                raise StopAsyncIteration
            self._current = delivery.messages()
            message = next(self._current, None)
        return message

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Yields batches as they come. Don't mix with `async for message`: each message goes to one of the two."""
        while (delivery := await self._next()) is not None:
            yield delivery

    async def attach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Adds queues. Returns when they are attached at their homes, and at the other slices that answer promptly. At
        a slice that is away they are attached when it is back.

        Raises NoSuchQueue (the other queues are added); InvalidName, DeadlineExceeded, ResourceExhausted (none is).
        """
        names = [encode_name(queue, "queue") for queue in queues]
        deadline = self._deadline(deadline_s)
        if self._closed or not self._slices:
            raise self._not_open()
        await self._attach(names, deadline)

    async def detach(self, *queues: Name, deadline_s: float | None = None) -> None:
        """Removes queues; their unacked messages are delivered again elsewhere. Does nothing for unknown queues.

        Raises DeadlineExceeded if a slice is slow to confirm; the queues are detached all the same.
        """
        names = [encode_name(queue, "queue") for queue in queues]
        await self._detach(names, self._deadline(deadline_s))

    def ack(self, *messages: Message | Delivery) -> None:
        """Acks each message or delivery, as its own `ack` does."""
        check_acked(messages)
        for message in messages:
            message.ack_nowait()

    def nack(self, *messages: Message | Delivery, delay_s: float = 0) -> None:
        """Nacks each message or delivery, as its own `nack` does."""
        check_acked(messages, "nack")
        check_delay_ms(delay_s)
        for message in messages:
            message.nack_nowait(delay_s)

    async def flush(self, *, deadline_s: float | None = None) -> None:
        """Waits until the slices have every ack: messages acked before never come again.

        After a lost connection it waits until the slice is back, and asks it for the acks that had no answer. Those
        that it lacks are sent again when their messages come again, and they come when the window has room, and no
        other consumer has them. Of two kinds of acks it knows nothing: those of queues detached since, and, with
        `drop_repeats=False`, those lost with a connection; these messages are handed out again.

        Raises DeadlineExceeded, naming the slices that have not answered, or that lack acks: ack what fills the window
        and flush again, or take it that these messages come again. Raises Unavailable, once, if acks that were lost
        with a connection were too many to be remembered: their messages may come again. Raises the error with which a
        slice refused acks, once.
        """
        await self._flush(self._deadline(deadline_s))

    async def _flush(self, deadline: float) -> None:
        parts = list(self._slices.values())
        try:
            async with asyncio.timeout_at(deadline):
                with self._awaiting_answers():
                    results = await asyncio.gather(*(part.flush() for part in parts), return_exceptions=True)
        except TimeoutError:
            slow = ", ".join(part.session.slice_name for part in parts if not part.flushed)
            lacking = sum(part.lacking for part in parts)
            raise (acks_lacking(slow, lacking) if lacking else deadline_exceeded(f"acks at slice {slow}")) from None
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _attach(self, queues: Sequence[bytes], deadline: float) -> None:
        names = [name for name in dict.fromkeys(queues) if name not in self._handles]
        self._check_count(len(self._queues) + len(names))
        handles = range(self._last_handle + 1, self._last_handle + 1 + len(names))
        self._last_handle += len(names)
        self._queues.update(zip(handles, names, strict=True))
        self._handles.update(zip(names, handles, strict=True))
        for part in self._slices.values():
            part.attachments.attach(handles)
        try:
            with self._awaiting_answers():
                absent = await self._at_homes(handles, deadline)
                await self._at_others(handles, deadline)
        except BaseException:
            self._forget(names)
            raise
        if absent:
            self._forget(absent)
            raise no_such_queue(absent[0])

    def _check_count(self, count: int) -> None:
        if count > CONSUME_QUEUES_MAX:
            raise ResourceExhausted(
                f"inbox queues: {count}; the limit is {CONSUME_QUEUES_MAX}",
                subject="inbox queues",
                limit=CONSUME_QUEUES_MAX,
                value=count,
            )

    async def _at_homes(self, handles: Iterable[int], deadline: float) -> list[bytes]:
        """Waits until each queue is attached at its home. Returns the queues that do not exist: their home does not
        have them."""
        owner_of = self._routing.map.current.owner_of
        homes: dict[str, list[int]] = {}
        for handle in handles:
            homes.setdefault(owner_of(direct_key(self._queues[handle])), []).append(handle)
        parts = {self._slices[name]: some for name, some in homes.items()}
        await asyncio.gather(*(part.attachments.wait(some, deadline) for part, some in parts.items()))
        return [
            self._queues[handle] for part, some in parts.items() for handle in some if handle in part.attachments.absent
        ]

    async def _at_others(self, handles: Sequence[int], deadline: float) -> None:
        """Waits until the queues are attached at all slices that are not away, but at most ATTACH_OTHERS_S."""
        deadline = min(deadline, asyncio.get_running_loop().time() + ATTACH_OTHERS_S)

        async def wait(part: InboxSlice) -> None:
            with contextlib.suppress(DeadlineExceeded, ResourceExhausted):
                await part.attachments.wait(handles, deadline)

        await asyncio.gather(*(wait(part) for part in self._slices.values() if not part.session.away))

    async def _detach(self, names: Sequence[bytes], deadline: float) -> None:
        handles = self._taken_out(names)
        if handles:
            with self._awaiting_answers():
                results = await asyncio.gather(
                    *(part.detach(handles, deadline) for part in self._slices.values()), return_exceptions=True
                )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    def _forget(self, names: Sequence[bytes]) -> None:
        """Removes queues and detaches them without waiting."""
        handles = self._taken_out(names)
        for part in self._slices.values() if handles else ():
            part.leave(handles)

    def _taken_out(self, names: Sequence[bytes]) -> list[int]:
        handles = [self._handles.pop(name) for name in dict.fromkeys(names) if name in self._handles]
        for handle in handles:
            del self._queues[handle]
        return handles

    def _deadline(self, deadline_s: float | None) -> float:
        seconds = self._deadline_s if deadline_s is None else DEADLINE_S.check(deadline_s)
        return asyncio.get_running_loop().time() + seconds

    def _follow(self, cluster_map: ClusterMap) -> None:
        """Attaches at slices that are new in the map. A slice that left the map owns nothing and stays silent."""
        for name in cluster_map.slices:
            if name not in self._slices:
                self._slices[name] = InboxSlice(
                    name,
                    self._routing,
                    self._queues,
                    self._window,
                    self._buffer_bytes_max,
                    self._put,
                    self._drop_repeats,
                    self._arrived.set,
                )

    @contextlib.contextmanager
    def _awaiting_answers(self) -> Iterator[None]:
        self._answers_awaited += 1
        self._room.set()
        try:
            yield
        finally:
            self._answers_awaited -= 1

    @property
    def _full(self) -> bool:
        excess = INBOX_EXCESS_BYTES if self._answers_awaited else 0
        return self._buffer_bytes >= self._buffer_bytes_max + excess and not self._closed

    async def _put(self, delivery: Delivery) -> None:
        """Buffers a delivery. Waits while the buffer is full; meanwhile the slice's stream is not read."""
        while self._full:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            return
        size_bytes = delivery.size_bytes
        self._buffer.append((delivery, size_bytes))
        self._buffer_bytes += size_bytes
        self._arrived.set()

    @staticmethod
    def _not_open() -> Unavailable:
        return Unavailable("the inbox is not open: use `async with broker.consume(...) as inbox`", subject="inbox")

    async def _next(self) -> Delivery | None:
        if not self._slices and not self._closed:
            raise self._not_open()
        while not self._buffer:
            if self._closed:
                return None
            self._raise_refusal()
            self._arrived.clear()
            await self._arrived.wait()
        self._idle = False
        delivery, size_bytes = self._buffer.popleft()
        self._buffer_bytes -= size_bytes
        self._room.set()
        return delivery

    def _raise_refusal(self) -> None:
        for part in self._slices.values():
            if part.error is not None:
                raise part.error

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(WINDOW_LOOK_S, self._look_at_windows)

    def _look_at_windows(self) -> None:
        """Logs once, if nothing came for a while, that a queue has as much unacked as its window allows."""
        window = self._window.window_messages or WINDOW_MESSAGES_DEFAULT
        for part in self._slices.values() if self._idle and not self._buffer else ():
            queue = self._queues.get(part.last_handle)
            unacked = part.repeats.unacked(part.last_handle) if part.repeats is not None and queue is not None else 0
            if queue is not None and unacked >= window:
                _log.warning(
                    "window of %s is full: %s messages are unacked, so slice %s sends no more of it; ack what is done,"
                    " or consume with a larger window_messages",
                    *(show(queue), f"{unacked:,}", part.session.slice_name),
                )
                return
        self._idle = True
        self._look_later()

    def _end(self) -> None:
        """Ends the inbox without waiting. Buffered messages will be delivered again."""
        self._closed = True
        self._arrived.set()
        self._room.set()
        self._unlisten()
        if self._look is not None:
            self._look.cancel()
        for part in self._slices.values():
            part.closed = True
            part.session.close_soon()
