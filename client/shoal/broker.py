"""Offers every verb to applications, and checks the arguments; other modules do the work. Verbs of queues and keys, of
bindings and of publishing stand in modules of their own (queue_verbs, binding_verbs, publish_verbs).

All calls may be cancelled. A request not sent yet is then not sent; one that was sent has an unknown outcome. A wrong
argument is refused here, before anything is queued, so it harms no other call. Bounds: `shoal_contract.arguments`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from types import TracebackType
from weakref import WeakSet

from shoal.binding_calls import BindingCalls
from shoal.binding_verbs import BindingVerbs
from shoal.connection import Connection
from shoal.core.known_queues import KnownQueues
from shoal.core.refusals import deadline_exceeded
from shoal.dropping import Dropping
from shoal.gaps import OnGap
from shoal.inbox import Inbox
from shoal.limits import CLOSE_S, DEADLINE_S, INBOX_BYTES_MAX
from shoal.messages import Delivery, Message, check_acked
from shoal.owner_calls import OwnerCalls
from shoal.publish_verbs import PublishVerbs
from shoal.pulling import Pulling, Wanted
from shoal.queue_calls import QueueCalls
from shoal.queue_verbs import QueueVerbs
from shoal.repeatable_publishes import RepeatablePublishes
from shoal.telling import OnError, OnState, SliceState, State, Telling, check_callback
from shoal.transactions import Transaction
from shoal.transport.base import Transport
from shoal.transport.grpc import GrpcTransport
from shoal.watching import CountsWatch, MembersWatch, Watching
from shoal_contract import arguments
from shoal_contract.addresses import redirector_addresses
from shoal_contract.arguments import check_flag, check_names, check_prefix, check_text
from shoal_contract.errors import ShoalError
from shoal_contract.names import Name, encode_name
from shoal_contract.wire import slice_pb2 as wire


def connect(
    *redirectors: str, deadline_s: float = DEADLINE_S, on_state: OnState | None = None, on_error: OnError | None = None
) -> Broker:
    """Returns a connection to a cluster: `async with shoal.connect("host:port") as broker:`.

    `redirectors`: one or several, each host:port, or a host alone for port 7400; any may fail. `deadline_s`: default
    for every call, seconds. Entering waits for the map and raises Unavailable if no redirector answers in that time;
    meanwhile the log `shoal` says why. Leaving waits briefly for answers (CLOSE_S), then fails unanswered calls with
    Unavailable. Raises Malformed for a wrong address, Unavailable in a process that was forked from one that had a
    connection.

    `on_state`: called with a StateChange when a slice, or the connection, is lost, back or closed. `on_error`: called
    with errors that come when nothing may wait for them: a consumed queue was dropped, a window is full, acks were
    refused. Both are plain functions, called in the event loop; what they raise is logged.
    """
    if not redirectors:
        raise TypeError("connect needs at least one redirector, host:port")
    addresses = [address for one in redirectors for address in redirector_addresses(check_text("redirector", one))]
    seconds = arguments.DEADLINE_S.check(deadline_s)
    return Broker(addresses, seconds, GrpcTransport(), on_state=on_state, on_error=on_error)


class Broker(BindingVerbs, PublishVerbs, QueueVerbs):
    """Is a connection to a cluster, made by `connect`, for use in the event loop that enters it: calls from another one
    raise BadCall.

    Besides the errors it names, every call may raise: TypeError, OutOfRange, TooLarge, InvalidName for its arguments
    (before anything is sent), DeadlineExceeded and Unavailable (outcome unknown), ResourceExhausted (a slice asks to
    slow down), Unauthenticated, PermissionDenied. `deadline_s`: seconds for this call; None: the connection's default.
    """

    def __init__(
        self,
        redirectors: Sequence[str],
        deadline_s: float,
        transport: Transport,
        *,
        on_state: OnState | None = None,
        on_error: OnError | None = None,
    ) -> None:
        check_callback("on_state", on_state)
        check_callback("on_error", on_error)
        self.connection = Connection(redirectors, deadline_s, transport, Telling(on_state, on_error))
        """Is for `Admin`, `Leases` and `Parts`, which share it. Applications need nothing of it, and it may change."""
        self._deadline = self.connection.deadline
        self._routing = self.connection.routing
        homes, known = self.connection.homes, KnownQueues()
        self._known = known
        self._queues = QueueCalls(self._routing, homes, known)
        self._bindings = BindingCalls(self._routing, homes, known)
        self._owners = OwnerCalls(self._routing)
        self._repeatable = RepeatablePublishes(self._routing.map, self.connection.calls)
        self._dropping = Dropping(self._routing, homes, known)
        self._pulling = Pulling(self._routing, homes)
        self._watching = Watching(self.connection.map, transport, self.connection.telling)
        self._inboxes: WeakSet[Inbox] = WeakSet()
        """Inboxes that the application still holds. They close with their connection."""

    async def __aenter__(self) -> Broker:
        await self.connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.map.loop.check()
        try:
            with contextlib.suppress(ShoalError):
                await self._flush(asyncio.get_running_loop().time() + CLOSE_S, also_left=True)
        finally:
            self.connection.telling.end()
            self._pulling.close()
            self._routing.begin_close()
            try:
                await asyncio.gather(
                    self._watching.close(),
                    self.connection.unreturned.close(),
                    *(inbox.close() for inbox in list(self._inboxes)),
                )
            finally:
                await self.connection.close(CLOSE_S)

    @property
    def map_version(self) -> int:
        """Returns the version of the map that this connection has now."""
        return self.connection.map.current.version

    @property
    def state(self) -> State:
        """Returns the state of the connection itself. AWAY: no redirector gives a map; slices go on without."""
        return self.connection.telling.state_of("").state

    @property
    def slices(self) -> dict[str, SliceState]:
        """Returns slice -> its state, for all slices of the map; empty before the first map."""
        return self.connection.telling.states_of(self.connection.map.slices)

    def transaction(self, *, deadline_s: float | None = None) -> Transaction:
        """Returns a transaction: `async with broker.transaction() as tx`. What `tx` takes in the block is done when the
        block ends: all of it, in one record of one slice, or nothing. `deadline_s`: for the end of the block. What it
        raises, and an example: see `Transaction`."""
        seconds = self._seconds(deadline_s)
        return Transaction(self._routing, self.connection.homes, self._known, lambda: self._deadline(seconds))

    def consume(
        self,
        queues: Name | Iterable[Name],
        *,
        window_messages: int = 0,
        window_bytes: int = 0,
        buffer_bytes: int = INBOX_BYTES_MAX,
        drop_repeats: bool = True,
        on_gap: OnGap | None = None,
        deadline_s: float | None = None,
    ) -> Inbox:
        """Returns an inbox of one or thousands of queues: `async with broker.consume(...) as inbox`.

        `window_messages`, `window_bytes`: how much each queue may have unacked on each slice; 0: the slice's default.
        Of one key a queue has at most 4,096 unacked, in all inboxes and pulls together, whatever the windows; those
        nacked with a delay that is not over count.
        `buffer_bytes`: how much the inbox holds unread. `drop_repeats`: leave out messages that this inbox handed out
        before. `on_gap`: is called with each Gap, between the messages before and behind it; without it, gaps are
        logged. `deadline_s`: default of the inbox's calls. Entering attaches the queues. It raises NoSuchQueue, and
        DeadlineExceeded where a queue's home does not answer; at other slices that are away, queues are attached when
        these are back.

        ```python
        async with broker.consume(["anna", "ben"]) as inbox:
            async for message in inbox:
                print(message.queue, message.key, message.body)
                await message.ack()
        ```
        """
        window = wire.Attach(
            window_messages=arguments.WINDOW_MESSAGES.check(window_messages),
            window_bytes=arguments.WINDOW_BYTES.check(window_bytes),
        )
        buffer_bytes = arguments.BUFFER_BYTES.check(buffer_bytes)
        check_flag("drop_repeats", drop_repeats)
        check_callback("on_gap", on_gap)
        seconds = self._seconds(deadline_s)
        names = list(check_names("queue", queues))
        inbox = Inbox(self._routing, names, window, buffer_bytes, drop_repeats, seconds, on_gap)
        self._inboxes.add(inbox)
        return inbox

    async def pull(
        self,
        queue: Name,
        messages: int,
        *,
        lease_ms: int = 0,
        on_gap: OnGap | None = None,
        deadline_s: float | None = None,
    ) -> list[Message]:
        """Takes up to `messages` messages now. A slice may give fewer though more wait: pull again until this returns
        []. Raises NoSuchQueue.

        They belong to this connection until they are acked, the connection ends, or `lease_ms` milliseconds are over
        (0: the queue's ack timeout; without one, no limit). If a slice does not answer, the messages of the others are
        returned; if they have none, this waits for it and raises DeadlineExceeded. What a slice gives too late, or
        after the pull was cancelled, is given back as soon as it comes, and this was no delivery.
        `on_gap`: is called with each Gap before this returns; without it, gaps are logged.

        ```python
        for message in await broker.pull("anna", 10, lease_ms=60_000):
            print(message.body)
            await message.ack()
        ```
        """
        check_callback("on_gap", on_gap)
        wanted = Wanted(
            encode_name(queue, "queue"),
            arguments.PULL_MESSAGES.check(messages),
            arguments.LEASE_MS.check(lease_ms),
            False,
            self._deadline(deadline_s),
            on_gap,
        )
        return await self._pulling.pull(wanted)

    async def peek(self, queue: Name, messages: int, *, deadline_s: float | None = None) -> list[Message]:
        """Returns messages as `pull` does, without taking them. Raises NoSuchQueue."""
        name = encode_name(queue, "queue")
        wanted = Wanted(name, arguments.PULL_MESSAGES.check(messages), 0, True, self._deadline(deadline_s))
        return await self._pulling.pull(wanted)

    async def ack(self, *messages: Message | Delivery) -> None:
        """Acks each message or delivery, as its own `ack` does. `flush` waits until the slices have the acks. Raises
        TypeError for anything else, before any is acked; Unavailable as their `ack` does."""
        check_acked(messages)
        for message in messages:
            message.ack_nowait()

    def watch_members(
        self, key: Name, *, presence: bool = True, after: str = "", deadline_s: float | None = None
    ) -> MembersWatch:
        """Returns a watch of the queues bound to a key: `async for event in broker.watch_members("room-7")`.

        First comes Members, then each change once, also over lost connections; of more than 1,000 members MemberCount.
        `presence`: tell also which are attached by a session. `after`: an event's `position`; what came after it is
        told, or, if it is too long ago, Members. `deadline_s`: until the first answer. Raises Malformed.
        """
        name, seconds, presence = encode_name(key, "key"), self._seconds(deadline_s), check_flag("presence", presence)
        return MembersWatch(self._watching, name, presence, check_text("after", after), seconds)

    def watch_counts(self, prefix: Name, *, presence: bool = True, deadline_s: float | None = None) -> CountsWatch:
        """Returns a watch of how many queues are bound to each key that begins with `prefix` ("": all keys).

        First comes a KeyCount for each key that has any, then Complete, then a KeyCount for each change. `presence`:
        count also those that are consumed now. `deadline_s`: until the first answer of every slice.
        """
        seconds, presence = self._seconds(deadline_s), check_flag("presence", presence)
        return CountsWatch(self._watching, check_prefix(prefix), presence, seconds)

    def _seconds(self, deadline_s: float | None) -> float:
        return self.connection.deadline_s if deadline_s is None else arguments.DEADLINE_S.check(deadline_s)

    async def flush(self, *, deadline_s: float | None = None) -> None:
        """Waits until everything under way is answered, acks of pulled messages included, but not pulls that went on
        without a slice's answer, or were cancelled. Inboxes have their own `flush`. Raises DeadlineExceeded, naming the
        slices that have not answered, or the error with which a slice refused an ack.
        """
        await self._flush(self._deadline(deadline_s))

    async def _flush(self, deadline: float, also_left: bool = False) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._pulling.flush()
                await self._routing.flush(also_left)
        except TimeoutError:
            slow = ", ".join(sorted(self._pulling.awaited | self._routing.awaited))
            raise deadline_exceeded(f"flush at slice {slow}" if slow else "flush") from None
