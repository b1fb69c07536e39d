"""The broker as an application sees it: every verb, arguments checked and named; the work is done below.

All calls may be cancelled. What was not sent yet is then not sent; what was sent has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import overload
from weakref import WeakSet

from shoal import publishing
from shoal.inbox import Inbox
from shoal.limits import CLOSE_S, DEADLINE_S, INBOX_BYTES_MAX
from shoal.map_watch import MapWatch
from shoal.merging import key_description
from shoal.messages import NOW, Delivery, KeyDescription, Message, QueueDescription, Receipt, Start
from shoal.pulling import Pulling
from shoal.queue_calls import QueueCalls
from shoal.requests import BindRequest, UnbindRequest
from shoal.routing import Routing
from shoal.slice_calls import SliceCalls
from shoal_contract.errors import ShoalError
from shoal_contract.names import Name, direct_key, encode_name
from shoal_contract.tasks import Tasks
from shoal_contract.wire import slice_pb2 as wire

Headers = Mapping[str, bytes]


def connect(*redirectors: str, deadline_s: float = DEADLINE_S) -> Broker:
    """A connection to a cluster: `async with shoal.connect("host:port") as broker:`.

    `redirectors`: one or several, each host:port; any may fail. `deadline_s`: default for every call, seconds.
    Entering waits for the map and raises Unavailable if no redirector answers in that time. Leaving waits briefly for
    answers (CLOSE_S), then fails what is unanswered with Unavailable.
    """
    if not redirectors:
        raise ValueError("connect needs at least one redirector, host:port")
    return Broker(redirectors, deadline_s)


class Broker:
    """Made by `connect`. For use in one event loop.

    Besides what a call names, every call may raise: InvalidName (before anything is sent), DeadlineExceeded and
    Unavailable (outcome unknown), ResourceExhausted (a slice asks to slow down), Unauthenticated, PermissionDenied.
    `deadline_s`: seconds for this call, else the connection's default.
    """

    def __init__(self, redirectors: Sequence[str], deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._tasks = Tasks("shoal")
        self._map = MapWatch(redirectors)
        self._routing = Routing(self._map, self._tasks)
        self._queues = QueueCalls(self._routing)
        self._pulling = Pulling(self._routing)
        self._calls = SliceCalls(self._map)
        self._inboxes: WeakSet[Inbox] = WeakSet()
        """Those that the application still holds: an inbox cannot outlive its connection."""

    async def __aenter__(self) -> Broker:
        self._map.start(self._tasks)
        try:
            await self._map.first(self._deadline_s)
        except BaseException:
            await self._tasks.close()
            raise
        self._routing.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(TimeoutError, ShoalError):
                async with asyncio.timeout(CLOSE_S):
                    await self.flush()
        finally:
            for inbox in list(self._inboxes):
                await inbox.close()
            await self._tasks.close()
            await self._routing.close()
            await self._calls.close()

    @property
    def map_version(self) -> int:
        """Of the map that this connection has now."""
        return self._map.current.version

    async def declare(
        self, queues: Name | Iterable[Name], *, expires_after_s: int = 0, deadline_s: float | None = None
    ) -> None:
        """Makes one or many queues exist. Repeating it changes nothing.

        `expires_after_s`: 0 for durable queues; else seconds without an attached session until dropped.
        Raises Conflict where a queue exists with other options (the other queues are declared).
        """
        names = [encode_name(queue, "queue") for queue in _listed(queues)]
        await self._queues.declare(names, expires_after_s, self._deadline(deadline_s))

    @overload
    async def bind(  # type: ignore[overload-overlap]  # a name is one key, never an iterable of them
        self, queue: Name, keys: Name, *, start: Start = NOW, deadline_s: float | None = None
    ) -> int: ...

    @overload
    async def bind(
        self, queue: Name, keys: Iterable[Name], *, start: Start = NOW, deadline_s: float | None = None
    ) -> dict[Name, int]: ...

    async def bind(
        self, queue: Name, keys: Name | Iterable[Name], *, start: Start = NOW, deadline_s: float | None = None
    ) -> int | dict[Name, int]:
        """Binds a queue to one key or many. Returns the offset from which messages will be seen: one, or key -> offset.

        `start`: NOW, EARLIEST, Last(messages) or Offset(offset). A second bind changes nothing and returns the same.
        Keys of one slice are bound all or none. Raises NoSuchQueue, OutOfRange, TooLarge (over 10,000 keys of a slice).
        """
        deadline = self._deadline(deadline_s)
        name = encode_name(queue, "queue")

        def make(some: Sequence[bytes]) -> BindRequest:
            return BindRequest(name, some, start, deadline)

        encoded = {encode_name(key, "key"): key for key in _listed(keys)}
        offsets = await self._queues.change_bindings(name, list(encoded), make, makes_parts=True, deadline=deadline)
        return _as_asked(keys, encoded, offsets)

    @overload
    async def unbind(  # type: ignore[overload-overlap]  # as for bind
        self, queue: Name, keys: Name, *, discard: bool = False, deadline_s: float | None = None
    ) -> int: ...

    @overload
    async def unbind(
        self, queue: Name, keys: Iterable[Name], *, discard: bool = False, deadline_s: float | None = None
    ) -> dict[Name, int]: ...

    async def unbind(
        self, queue: Name, keys: Name | Iterable[Name], *, discard: bool = False, deadline_s: float | None = None
    ) -> int | dict[Name, int]:
        """Ends bindings. Returns the first offset that will not be seen (0: was not bound): one, or key -> offset.

        What was published while bound stays until consumed, unless `discard`. Keys of one slice: all or none.
        Raises NoSuchQueue, TooLarge.
        """
        deadline = self._deadline(deadline_s)
        name = encode_name(queue, "queue")

        def make(some: Sequence[bytes]) -> UnbindRequest:
            return UnbindRequest(name, some, discard, deadline)

        encoded = {encode_name(key, "key"): key for key in _listed(keys)}
        offsets = await self._queues.change_bindings(name, list(encoded), make, makes_parts=False, deadline=deadline)
        return _as_asked(keys, encoded, offsets)

    async def publish(
        self,
        key: Name,
        body: bytes,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        deadline_s: float | None = None,
    ) -> Receipt:
        """Publishes one message; durable when this returns. Repeats after a lost connection are stored once.

        `mandatory`: raise Unroutable where no queue is bound. Raises TooLarge. Waits while too much is unanswered.
        """
        return await (await self.publish_soon(key, body, headers=headers, mandatory=mandatory, deadline_s=deadline_s))

    async def publish_soon(
        self,
        key: Name,
        body: bytes,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        deadline_s: float | None = None,
    ) -> asyncio.Future[Receipt]:
        """As `publish`, but returns as soon as there is room for it, with the future of its receipt."""
        name = encode_name(key, "key")
        request = publishing.single(key, name, body, headers, mandatory, self._deadline(deadline_s))
        await self._routing.publish(request)
        return request.future

    def publish_nowait(
        self,
        key: Name,
        body: bytes,
        *,
        headers: Headers | None = None,
        mandatory: bool = False,
        deadline_s: float | None = None,
    ) -> asyncio.Future[Receipt]:
        """As `publish_soon`, but raises ResourceExhausted where that would wait for room."""
        name = encode_name(key, "key")
        request = publishing.single(key, name, body, headers, mandatory, self._deadline(deadline_s))
        self._routing.publish_nowait(request)
        return request.future

    async def publish_many(
        self,
        key: Name,
        bodies: Sequence[bytes],
        *,
        headers: Sequence[Headers | None] = (),
        mandatory: bool = False,
        deadline_s: float | None = None,
    ) -> Receipt:
        """Publishes messages to one key as one chunk: all or none, at consecutive offsets from the receipt's `offset`.

        `headers`: none, or one (or None) for each body. At most 4,096 messages and 2 MiB. Raises TooLarge, Malformed
        (no messages), Unroutable.
        """
        request = publishing.batch(key, encode_name(key, "key"), bodies, headers, mandatory, self._deadline(deadline_s))
        await self._routing.publish(request)
        return await request.future

    async def send(
        self, queue: Name, body: bytes, *, headers: Headers | None = None, deadline_s: float | None = None
    ) -> Receipt:
        """Publishes to the queue's direct key, `@queue`. Raises Unroutable where there is no such queue."""
        key = direct_key(encode_name(queue, "queue"))
        request = publishing.single(queue, key, body, headers, True, self._deadline(deadline_s))
        await self._routing.publish(request)
        return await request.future

    def consume(
        self,
        queues: Name | Iterable[Name],
        *,
        window_messages: int = 0,
        window_bytes: int = 0,
        buffer_bytes: int = INBOX_BYTES_MAX,
        drop_repeats: bool = True,
        deadline_s: float | None = None,
    ) -> Inbox:
        """An inbox of one or thousands of queues: `async with broker.consume(...) as inbox`. Entering attaches them.

        `window_messages`, `window_bytes`: what each queue may have unacked on each slice; 0: the slice's default.
        `buffer_bytes`: what the inbox holds unread. `drop_repeats`: leave out what this inbox already handed out.
        Entering raises NoSuchQueue, DeadlineExceeded.
        """
        names = [encode_name(queue, "queue") for queue in _listed(queues)]
        window = wire.Attach(window_messages=window_messages, window_bytes=window_bytes)
        seconds = self._deadline_s if deadline_s is None else deadline_s
        inbox = Inbox(self._routing, names, window, buffer_bytes, drop_repeats, seconds)
        self._inboxes.add(inbox)
        return inbox

    async def pull(
        self, queue: Name, messages: int, *, lease_ms: int = 0, deadline_s: float | None = None
    ) -> list[Message]:
        """Takes up to `messages` messages now, fewer if there are fewer (or 2 MiB a slice). Raises NoSuchQueue.

        They are this connection's until acked, it ends, or `lease_ms` milliseconds are over (0: no limit). A pull that
        is cancelled may have taken messages: give it a lease.
        """
        name = encode_name(queue, "queue")
        return await self._pulling.pull(name, messages, lease_ms, False, self._deadline(deadline_s))

    async def peek(self, queue: Name, messages: int, *, deadline_s: float | None = None) -> list[Message]:
        """As `pull`, without taking them."""
        name = encode_name(queue, "queue")
        return await self._pulling.pull(name, messages, 0, True, self._deadline(deadline_s))

    async def ack(self, *messages: Message | Delivery) -> None:
        """As each one's own `ack`. Gathered; `flush` waits until the slices have them."""
        for message in messages:
            message.ack_nowait()

    async def describe(
        self, queue: Name, *, bindings: bool = False, deadline_s: float | None = None
    ) -> QueueDescription:
        """A queue over all its slices; `exists` says whether there is one. `bindings`: list them too."""
        name = encode_name(queue, "queue")
        return await self._queues.describe(queue, name, bindings, self._deadline(deadline_s))

    async def describe_key(self, key: Name, *, deadline_s: float | None = None) -> KeyDescription:
        """A key at its slice; `exists` is False for one that keeps nothing."""
        question = wire.Describe(keys=[encode_name(key, "key")])
        session = self._routing.session_of(question.keys[0])
        answer = await session.ask(question, self._deadline(deadline_s))
        return key_description(key, answer.description.keys[0])

    async def drop(self, queue: Name, *, deadline_s: float | None = None) -> None:
        """Ends a queue with its bindings and backlog, on all slices. Raises NoSuchQueue."""
        await self._queues.drop(encode_name(queue, "queue"), self._deadline(deadline_s))

    async def purge(self, queue: Name, *, deadline_s: float | None = None) -> int:
        """Drops a queue's backlog on all slices; it stays bound. Returns how many messages that were.

        What its consumers have unacked is forgotten too: it is not given again, and its ack changes nothing. What is on
        its way to one, or published meanwhile, may still come. Raises NoSuchQueue.
        """
        return await self._queues.purge(encode_name(queue, "queue"), self._deadline(deadline_s))

    async def flush(self) -> None:
        """Until everything under way is answered, acks of pulled messages included."""
        await self._pulling.flush()
        await self._routing.flush()

    def _deadline(self, deadline_s: float | None) -> float:
        return asyncio.get_running_loop().time() + (self._deadline_s if deadline_s is None else deadline_s)


def _listed(names: Name | Iterable[Name]) -> Iterable[Name]:
    return (names,) if isinstance(names, str | bytes) else names


def _as_asked(
    keys: Name | Iterable[Name], encoded: Mapping[bytes, Name], offsets: Mapping[bytes, int]
) -> int | dict[Name, int]:
    if isinstance(keys, str | bytes):
        return offsets[next(iter(encoded))]
    return {key: offsets[name] for name, key in encoded.items()}
