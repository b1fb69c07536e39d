"""Defines what applications get back: receipts, messages, deliveries, descriptions; and where a bind may start.

Names that the caller gave come back as given; names from the wire are `str` (`*_bytes` for names that are not UTF-8).
Not here: how these travel. Long because messages and deliveries have the same calls, each with its docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from math import ceil
from types import TracebackType
from typing import ClassVar, Final, NamedTuple, Protocol

from shoal.limits import DELIVERY_OVERHEAD_BYTES, PROCESS_RETRY_S
from shoal.queue_names import QueueNames
from shoal_contract.arguments import AGO_S, LAST_MESSAGES, OFFSET, RETRY_AFTER_S, START_VALUE, check_delay_ms
from shoal_contract.errors import ShoalError
from shoal_contract.names import Name, text
from shoal_contract.options import PLAIN, KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk


class Start(NamedTuple):
    """Says where a bind begins. Use NOW, EARLIEST, Last(n), Ago(seconds) or Offset(n)."""

    start: wire.Start.ValueType
    """Where to begin: a number of the wire's enumeration `Start`."""
    value: int = 0
    """The number that Last or Offset was given, Ago in milliseconds; else 0."""

    def recovered(self, first: int) -> bool:
        """Returns whether a bind that began at `first`, as it returned, begins no later than it was asked to: False
        only for Offset(n) where the key did not keep n any more. What lies between is gone. True where the queue was
        bound before (`BoundBefore`): then the bind changed nothing, and says nothing about what is kept."""
        return self.start != wire.START_OFFSET or isinstance(first, BoundBefore) or first <= self.value


class BoundBefore(int):
    """Is the first offset that a bind returns if it asked for an offset, and the queue was bound to the key before: the
    binding stays as it is. An `int` as any other besides."""

    __slots__ = ()


NOW: Final = Start(wire.START_UNSPECIFIED)
"""Starts with the first message published after the bind."""

EARLIEST: Final = Start(wire.START_EARLIEST)
"""Starts with the first message that the key still keeps."""


def Last(messages: int) -> Start:  # noqa: N802 - reads as the value it is
    """Starts with the last `messages` (>= 0) that the key still keeps. Raises TypeError, OutOfRange."""
    return Start(wire.START_LAST, LAST_MESSAGES.check(messages))


def Offset(offset: int) -> Start:  # noqa: N802 - reads as the value it is
    """Starts at `offset` (>= 0), or where the key begins if it does not keep that one any more (`Start.recovered`).
    Raises TypeError, OutOfRange."""
    return Start(wire.START_OFFSET, OFFSET.check(offset))


def Ago(seconds: float) -> Start:  # noqa: N802 - reads as the value it is
    """Starts with the first message, of those that the key still keeps, that was published in the last `seconds` (> 0).
    Raises TypeError, OutOfRange."""
    return Start(wire.START_AGE, ceil(AGO_S.check(seconds) * 1000))


_NAMED: Final = {
    "now": "shoal.NOW",
    "earliest": "shoal.EARLIEST",
    "last": "shoal.Last(n)",
    "ago": "shoal.Ago(seconds)",
    "offset": "shoal.Offset(n)",
}


def check_start(start: object) -> Start:
    """Returns `start`. Raises TypeError, which says what to pass, and OutOfRange."""
    if start is NOW:
        return NOW
    if not isinstance(start, Start):
        meant = _NAMED.get(start.lower()) if isinstance(start, str) else None
        found = f"{start[:40]!r}" if isinstance(start, str) else type(start).__name__
        advice = f"; pass {meant}" if meant else ""
        raise TypeError(f"start must be one of {', '.join(_NAMED.values())}, not {found}{advice}")
    if isinstance(start.start, bool) or start.start not in _STARTS:
        raise TypeError(f"start must be one of {', '.join(_NAMED.values())}, not {start!r:.80}")
    START_VALUE.check(start.value)
    return start


_STARTS: Final = tuple(wire.Start.values())


def check_acked(messages: Sequence[object], what: str = "ack") -> None:
    """Raises TypeError unless all are messages or deliveries. Checks all of them before any is acked, or nacked."""
    for message in messages:
        if not isinstance(message, Message | Delivery):
            raise TypeError(f"{what} takes messages and deliveries, not {type(message).__name__}")


class Done(NamedTuple):
    """Names a range of a key's offsets that are done: first <= offset < end."""

    key: Name
    """The key that the messages were published to."""
    first: int
    """The first offset that is done."""
    end: int
    """The offset behind the last one that is done."""


class Receipt(NamedTuple):
    """Answers a publish, which is durable by then. `offset` 0: nothing was kept, as no queue was bound or as it was a
    live publish; or it is `delayed`."""

    key: Name
    """The key as the caller gave it; for `send`, the queue."""
    offset: int
    """The offset of the first message."""
    queues: int
    """The number of queues that the publish was routed to."""
    consumed: int
    """The number of these queues that were consumed at that moment."""
    messages: int = 1
    """The number of messages, at consecutive offsets."""
    delayed: bool = False
    """True if they wait for the time of `not_before`; `offset` and `queues` are 0 then."""


class PartLife(NamedTuple):
    """Names a slice, and the life of a queue's part there; 0: not known, LIFE_OVER: one that ended, LIFE_LEFT: that of
    a queue that has left the inbox."""

    slice_name: str
    life: int


NO_PART: Final = PartLife("", 0)


class Acker(Protocol):
    """Takes a delivery's acks: the inbox's or the connection's gatherer for one slice."""

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Takes the ack of offsets first <= offset < end of a delivery, for some of its consumers."""

    def nack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes], delay_ms: int) -> None:
        """Takes the nack of offsets first <= offset < end of a delivery, for some of its consumers."""

    def give_back(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Takes back offsets first <= offset < end of a delivery that no program was given, for some of its consumers:
        they are given again at once, and this was no delivery."""

    def queue_of(self, consumer: int | bytes) -> bytes:
        """Returns the queue that a consumer stands for; empty if it has left the inbox."""

    def part_of(self, consumer: int | bytes) -> PartLife:
        """Returns of which life of a consumer's queue its messages are."""

    def check_call(self) -> None:
        """Raises what each ack raises where this is called: BadCall from another event loop."""


class Processing:
    """Acks a message, or a delivery, when the block ends without an exception: `async with message.process():`.

    After an exception, which goes on to the caller, it gives the message back (see `Message.process`).
    """

    __slots__ = ("_ack", "_check_call", "_nack", "_retry_after_s")

    def __init__(
        self,
        ack: Callable[[], None],
        nack: Callable[[float], None],
        retry_after_s: float,
        check_call: Callable[[], None],
    ) -> None:
        self._ack = ack
        self._check_call = check_call
        self._nack = nack
        self._retry_after_s = RETRY_AFTER_S.check(retry_after_s)

    async def __aenter__(self) -> None:
        """Raises, before any work is done, what each ack raises here: BadCall from another event loop."""
        self._check_call()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._ack()
            return
        with suppress(ShoalError, RuntimeError):  # The block's own error is what the caller must see.
            self._nack(self._retry_after_s if isinstance(error, Exception) else 0)


class Delivery:
    """Holds consecutive messages of one key, once for all the queues that get them.

    `first` and `end`: offsets first <= offset < end. `time_ms`: the leader's time of the publish, milliseconds since
    1970. `expires_ms`: when they expire, by the same clock; 0: never. `redelivered`: how often they were delivered
    before to any of the queues, as far as the slice knows.
    """

    live: ClassVar[bool] = False
    """True for a live publish: the messages have no offsets, and are not acked."""

    __slots__ = (
        "_acker",
        "_chunk",
        "_chunk_first",
        "_consumers",
        "_names",
        "end",
        "expires_ms",
        "first",
        "key_bytes",
        "redelivered",
        "time_ms",
    )

    def __init__(
        self,
        item: wire.Delivery,
        first: int,
        end: int,
        chunk: Chunk,
        consumers: Sequence[int | bytes],
        acker: Acker,
        names: QueueNames | None = None,
    ) -> None:
        """`names`: the queues of its handles."""
        self.key_bytes = item.key
        self.first = first
        self.end = end
        self.time_ms = item.time_ms
        self.expires_ms = item.expires_ms
        self.redelivered = item.redelivered
        self._chunk = chunk
        self._chunk_first = item.first
        self._consumers = consumers
        self._acker = acker
        self._names = names

    @property
    def key(self) -> str:
        """Returns the key that the messages were published to."""
        return text(self.key_bytes)

    @property
    def bodies(self) -> list[bytes]:
        """Returns the body of each message."""
        return list(self._chunk.bodies[self.first - self._chunk_first : self.end - self._chunk_first])

    @property
    def queues(self) -> list[str]:
        """Returns the names of the queues that get these messages."""
        return [text(queue) for queue in self.queues_bytes]

    @property
    def queues_bytes(self) -> list[bytes]:
        """Returns `queues` as bytes, for names that are not UTF-8."""
        return [self.queue_of(consumer) for consumer in self._consumers]

    @property
    def parts(self) -> list[tuple[bytes, PartLife]]:
        """Returns the queues that get these messages, each with the life of which they are."""
        return [(self.queue_of(consumer), self._acker.part_of(consumer)) for consumer in self._consumers]

    def part_of(self, consumer: int | bytes) -> PartLife:
        """Returns the life of the queue of one of this delivery's consumers, for `Message`."""
        return self._acker.part_of(consumer)

    def __len__(self) -> int:
        """Returns the number of messages."""
        return self.end - self.first

    def body_at(self, offset: int) -> bytes:
        """Returns the body of the message at `offset`, which is one of this delivery's."""
        return self._chunk.bodies[offset - self._chunk_first]

    def headers_at(self, offset: int) -> dict[str, bytes]:
        """Returns a copy of the headers of the message at `offset`; empty if the publisher gave none."""
        headers = self._chunk.headers
        return dict(headers[offset - self._chunk_first].fields) if headers else {}

    def check_call(self) -> None:
        """Raises what each ack raises where this is called, for `process`: BadCall from another event loop."""
        self._acker.check_call()

    def queue_of(self, consumer: int | bytes) -> bytes:
        """Returns the queue of one of this delivery's consumers, for `Message`."""
        if self._names is None or not isinstance(consumer, int):
            return self._acker.queue_of(consumer)
        return self._acker.queue_of(consumer) or self._names.of(consumer)

    def ack_one(self, consumer: int | bytes, offset: int) -> None:
        """Acks the message at `offset` for one of this delivery's consumers, for `Message`."""
        self._acker.ack(self, offset, offset + 1, (consumer,))

    def nack_one(self, consumer: int | bytes, offset: int, delay_ms: int) -> None:
        """Nacks the message at `offset` for one of this delivery's consumers, for `Message`."""
        self._acker.nack(self, offset, offset + 1, (consumer,), delay_ms)

    def messages(self) -> Iterator[Message]:
        """Yields each message, once for each queue."""
        for offset in range(self.first, self.end):
            for consumer in self._consumers:
                yield Message(self, consumer, offset)

    def leave_out(self, consumers: Container[int | bytes]) -> bool:
        """Takes consumers out, and gives back what they would have got: no program was given it. Returns whether others
        are left."""
        gone = [one for one in self._consumers if one in consumers]
        if gone:
            self._consumers = [one for one in self._consumers if one not in consumers]
            self.give_back(gone)
        return bool(self._consumers)

    def give_back(self, consumers: Sequence[int | bytes] | None = None) -> None:
        """Gives all of it back for these consumers, or for all: no program was given it."""
        self._acker.give_back(self, self.first, self.end, self._consumers if consumers is None else consumers)

    @property
    def handles(self) -> Sequence[int]:
        """Returns the consumers of a delivery that an inbox got."""
        return self._consumers  # type: ignore[return-value]  # handles

    def give_back_one(self, consumer: int | bytes, offset: int) -> None:
        """Gives the message at `offset` back for one of this delivery's consumers, for `Message`."""
        self._acker.give_back(self, offset, offset + 1, (consumer,))

    def note_handed_out(self, consumers: Sequence[int | bytes] | None = None, offset: int | None = None) -> None:
        """Notes that the program has these messages: for these consumers, or all; the one at `offset`, or all. Does
        nothing, but for deliveries of an inbox that hands out repeats (`InboxDelivery`)."""

    def after(self, consumer: int | bytes, offset: int) -> list[Delivery]:
        """Returns what `messages` yields after this one."""
        later = self._consumers[self._consumers.index(consumer) + 1 :]
        rest = [self._part(offset, offset + 1, later)] if later else []
        return [*rest, self._part(offset + 1, self.end, self._consumers)] if offset + 1 < self.end else rest

    def _part(self, first: int, end: int, consumers: Sequence[int | bytes]) -> Delivery:
        part = copy(self)
        part.first, part.end, part._consumers = first, end, consumers  # noqa: SLF001 - one of its own class
        return part

    @property
    def size_bytes(self) -> int:
        """Returns about its size in memory: its share of the chunk, and 16 bytes a queue."""
        share = self._chunk.ByteSize() * len(self) // len(self._chunk.bodies)
        return share + 16 * len(self._consumers) + DELIVERY_OVERHEAD_BYTES

    async def ack(self) -> None:
        """Acks all messages for all queues of the delivery. `flush()` waits until the slice has the ack.

        Raises Unavailable if that can have no effect: the inbox, or the connection that pulled it, is closed.
        """
        self.ack_nowait()

    def ack_nowait(self) -> None:
        """Does the same as `ack`, which never waits anyway."""
        self._acker.ack(self, self.first, self.end, self._consumers)

    async def nack(self, delay_s: float = 0) -> None:
        """Nacks all messages for all queues of the delivery, as `Message.nack` does with one. Raises OutOfRange,
        TypeError, Unavailable as that does."""
        self.nack_nowait(delay_s)

    def nack_nowait(self, delay_s: float = 0) -> None:
        """Does the same as `nack`, which never waits anyway."""
        self._acker.nack(self, self.first, self.end, self._consumers, check_delay_ms(delay_s))

    def process(self, *, retry_after_s: float = PROCESS_RETRY_S) -> Processing:
        """Returns a block that acks the whole delivery at its end: `async with delivery.process():`. After an exception
        it gives all of it back, as `Message.process` does."""
        return Processing(self.ack_nowait, self.nack_nowait, retry_after_s, self.check_call)

    def __repr__(self) -> str:
        return f"Delivery(key={self.key!r}, first={self.first}, end={self.end}, queues={len(self._consumers)})"


class Message:
    """Is one message for one queue. (key, offset) is unique and stable."""

    live: ClassVar[bool] = False
    """True for a live message: `offset` is 0, and an ack does nothing."""

    __slots__ = ("_consumer", "_delivery", "offset")

    def __init__(self, delivery: Delivery, consumer: int | bytes, offset: int) -> None:
        self._delivery = delivery
        self._consumer = consumer
        self.offset = offset

    def give_back(self) -> None:
        """Gives back a message that was only looked at, as `shoal tail` does: its delivery does not count. Do so only
        after `Inbox.stop` of its queue: else it comes again here at once. One of `Leases.pull` is given back in the
        background, if its lease lasts so long."""
        self._delivery.give_back_one(self._consumer, self.offset)

    def note_handed_out(self) -> None:
        """Notes that the program has it, for an inbox that is to know."""
        self._delivery.note_handed_out((self._consumer,), self.offset)

    def after(self) -> list[Delivery]:
        """Returns what its delivery yields after it."""
        return self._delivery.after(self._consumer, self.offset)

    @property
    def queue(self) -> str:
        """Returns the queue that the message is for, also when that has left the inbox."""
        return text(self.queue_bytes)

    @property
    def queue_bytes(self) -> bytes:
        """Returns `queue` as bytes, for a name that is not UTF-8."""
        return self._delivery.queue_of(self._consumer)

    @property
    def parts(self) -> list[tuple[bytes, PartLife]]:
        """Returns the queue, with the life of which the message is."""
        return [(self.queue_bytes, self._delivery.part_of(self._consumer))]

    @property
    def key(self) -> str:
        """Returns the key that the message was published to."""
        return text(self._delivery.key_bytes)

    @property
    def key_bytes(self) -> bytes:
        """Returns `key` as bytes, for a name that is not UTF-8."""
        return self._delivery.key_bytes

    @property
    def body(self) -> bytes:
        """Returns the body as it was published."""
        return self._delivery.body_at(self.offset)

    @property
    def headers(self) -> dict[str, bytes]:
        """Returns a copy of the headers; empty if the publisher gave none."""
        return self._delivery.headers_at(self.offset)

    @property
    def time_ms(self) -> int:
        """Returns the leader's time of the publish, milliseconds since 1970."""
        return self._delivery.time_ms

    @property
    def expires_ms(self) -> int:
        """Returns when the message expires, by the leader's clock, milliseconds since 1970; 0: never."""
        return self._delivery.expires_ms

    @property
    def redelivered(self) -> int:
        """Returns how often the message was delivered before, as far as the slice knows; 0: this is the first time."""
        return self._delivery.redelivered

    async def ack(self) -> None:
        """Acks the message for its queue. `flush()` waits until the slice has the ack.

        Raises Unavailable if that can have no effect: the inbox, or the connection that pulled it, is closed.
        """
        self.ack_nowait()

    def ack_nowait(self) -> None:
        """Does the same as `ack`, which never waits anyway."""
        self._delivery.ack_one(self._consumer, self.offset)

    async def nack(self, delay_s: float = 0) -> None:
        """Gives the message back: it is delivered again, here or to another consumer, no earlier than after `delay_s`
        seconds (up to a day). A message that was acked stays acked. Until the delay is over it counts in the 4,096
        messages of one key that a queue may have unacked.

        The delay is kept in the leader's memory: with a new leader, or if this connection is lost before the slice has
        the nack, the message comes at once. Raises OutOfRange, TypeError; Unavailable as `ack` does.
        """
        self.nack_nowait(delay_s)

    def nack_nowait(self, delay_s: float = 0) -> None:
        """Does the same as `nack`, which never waits anyway."""
        self._delivery.nack_one(self._consumer, self.offset, check_delay_ms(delay_s))

    def process(self, *, retry_after_s: float = PROCESS_RETRY_S) -> Processing:
        """Returns a block that acks the message at its end: `async with message.process():`.

        ```python
        async with broker.consume("anna") as inbox:
            async for message in inbox:
                async with message.process(retry_after_s=5):
                    print(message.body)
        ```
        If the block raises, the message is nacked, and the exception goes on: the message comes again, here or to
        another consumer, no earlier than after `retry_after_s` seconds (up to a day; 0: at once). A block that is
        cancelled, or ended by another exception that is no error (KeyboardInterrupt), gives it back at once. A message
        that can never be done comes again and again, unless its queue has `max_deliveries`. What the block itself acked
        or nacked stays so.

        If a nack can have no effect any more, the message is given again as one that was left. A block that ends well
        raises Unavailable if the ack can have no effect, as `ack` does. Raises TypeError, OutOfRange; and BadCall,
        before the block runs, from another event loop than the connection's.
        """
        return Processing(self.ack_nowait, self.nack_nowait, retry_after_s, self._delivery.check_call)

    def __repr__(self) -> str:
        return f"Message(queue={self.queue!r}, key={self.key!r}, offset={self.offset}, {len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class BindingDescription:
    """Describes one binding: `start` <= offsets < `end` (0: still bound) are its own; below `cursor` all is done."""

    key: str
    """The key's name."""
    start: int
    cursor: int
    end: int
    messages: int
    """The backlog of the binding."""
    unacked: int = 0
    """So many of these messages inboxes and pulls have and did not ack, or gave back with a delay that is not over."""
    full: bool = False
    """True if as much of this key is unacked as may be, or it was acked with gaps and the slice's memory of attached
    queues is full: no consumer of the queue gets more of it until some is acked or comes back, the delay of its nack is
    over, or there is room."""


@dataclass(frozen=True, slots=True)
class FarewellDescription:
    """Describes a queue's farewell, which is published once no session has consumed the queue for a time."""

    key: Name
    """Where it is published; bytes, if that is not UTF-8."""
    after_s: int
    """For so many seconds no session must have consumed the queue."""
    due_ms: int
    """When it is published if none comes until then, milliseconds since 1970 by the home's clock; 0: one consumes the
    queue now, or the home has just started."""


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """Describes a queue over all its slices. Counts are exact, each slice at its own moment."""

    queue: Name
    """The queue's name as the caller gave it."""
    exists: bool
    """True if there is such a queue; if not, all counts are 0."""
    options: QueueOptions
    """The options it was declared with."""
    binding_count: int
    """The number of its bindings."""
    messages: int
    """The backlog of the queue."""
    body_bytes: int
    """The bytes of bodies in the backlog."""
    oldest_ms: int
    """When the oldest message of the backlog was published; 0: no backlog."""
    attached_sessions: int
    """The number of attached sessions, on the slice that has most."""
    consumed: bool
    """True if on some slice a session has it attached, or has messages of it that it pulled and did not ack."""
    unacked: int = 0
    """So many of the queue's messages inboxes and pulls have and did not ack, or gave back with a delay that is not
    over: the sum of its bindings'."""
    bindings: tuple[BindingDescription, ...] = ()
    """The queue's bindings, only if asked for."""
    farewell: FarewellDescription | None = None
    """Its farewell, if it has one."""


@dataclass(frozen=True, slots=True)
class KeyDescription:
    """Describes a key as its slice has it now."""

    key: Name
    """The key's name as the caller gave it."""
    exists: bool
    """True if its slice keeps anything of the key."""
    head: int
    """The offset that the next message gets."""
    low: int
    """The lowest offset that is still kept."""
    queues: int
    """The number of queues bound to the key."""
    body_bytes: int
    """The bytes of bodies kept."""
    options: KeyOptions = PLAIN
    """What it was configured with."""
