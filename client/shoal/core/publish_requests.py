"""Defines publishes as requests of a Change frame: a whole chunk, or single messages that become one chunk while the
frame gathers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple, TypeVar

from shoal.core.requests import Columns, Request
from shoal.core.waiters import Waiter, fail_waiter
from shoal.limits import CHUNK_GATHER_BYTES_MAX
from shoal.messages import Receipt
from shoal_contract.arguments import TTL_S, check_flag, check_time
from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.limits import CHUNK_HEADERS_MAX, CHUNK_MESSAGES_MAX
from shoal_contract.names import Name
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, Headers

Item = TypeVar("Item")


class PublishTerms(NamedTuple):
    """Says how a chunk is published. `not_before_ms`: Unix time; 0: now. `live`: only to sessions that consume now.
    `ttl_ms`: how long it is valid; 0: for ever."""

    mandatory: bool = False
    not_before_ms: int = 0
    live: bool = False
    ttl_ms: int = 0


AT_ONCE: Final = PublishTerms()
MANDATORY: Final = PublishTerms(mandatory=True)


def publish_terms(mandatory: object, not_before: object, live: object = False, ttl: object = None) -> PublishTerms:
    """Returns the terms that a caller asks for. `ttl`: seconds; None: for ever. Raises TypeError, OutOfRange; Malformed
    for a live publish with a time or a ttl."""
    if not_before is None and ttl is None and live is False and (mandatory is False or mandatory is True):
        return MANDATORY if mandatory else AT_ONCE
    terms = PublishTerms(
        check_flag("mandatory", mandatory),
        check_time("not_before", not_before),
        check_flag("live", live),
        0 if ttl is None else ceil(round(TTL_S.check(ttl) * 1000, 3)),
    )
    if terms.live and terms.ttl_ms:
        raise Malformed("a live publish is given now or never: ttl and live exclude each other", subject="live")
    if terms.live and terms.not_before_ms:
        raise Malformed("a live publish cannot wait for a time: not_before and live exclude each other", subject="live")
    return terms


class PublishRequest(Request):
    """Is the base of requests that publish one chunk to one key."""

    __slots__ = ("key", "live")
    verb = "publish"

    def __init__(self, key: bytes, terms: PublishTerms, wire_bytes: int, deadline: float) -> None:
        super().__init__((PublishRequest, terms), 1, wire_bytes + len(key) + 8, deadline)
        self.key = key
        self.live = terms.live

    @property
    def delayed(self) -> bool:
        """Returns whether the chunk waits for its time."""
        return bool(self.kind[1].not_before_ms)

    @abstractmethod
    def chunk(self) -> bytes:
        """Returns the serialized chunk, which does not change after this."""

    def begin(self, step: wire.Step) -> Columns:
        publishes = step.publishes
        publishes.mandatory, publishes.not_before_ms, publishes.live, publishes.ttl_ms = self.kind[1]
        return (step.publishes.keys,)

    def put(self, columns: Columns) -> None:
        columns[0].append(self.key)

    @staticmethod
    def finish(step: wire.Step, requests: Sequence[Request]) -> None:
        step.publishes.chunks.extend([request.chunk() for request in requests if isinstance(request, PublishRequest)])


class PublishChunk(PublishRequest):
    """Publishes a whole chunk, encoded by the caller, with one waiter."""

    __slots__ = ("_chunk", "_count", "_name", "_waiter")

    def __init__(
        self,
        name: Name,
        key: bytes,
        chunk: bytes,
        count: int,
        terms: PublishTerms,
        deadline: float,
        waiter: Waiter[Receipt],
    ) -> None:
        super().__init__(key, terms, len(chunk), deadline)
        self._name = name
        self._chunk = chunk
        self._count = count
        self._waiter = waiter

    @property
    def alive(self) -> bool:
        return not self._waiter.done()

    def chunk(self) -> bytes:
        return self._chunk

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        first, queues = outcome.offsets[position], outcome.queues[position]
        receipt = Receipt(self._name, first, queues, next(consumed, 0), self._count, self.delayed)
        if not self._waiter.done():
            self._waiter.set_result(receipt)

    def fail(self, error: ShoalError) -> None:
        fail_waiter(self._waiter, error)


class PublishSingles(PublishRequest):
    """Publishes single messages to one key, which came one after the other while a frame gathers: one chunk, many
    waiters."""

    __slots__ = ("_bodies", "_body", "_header_fields", "_headers", "_message", "_serialized", "_waiters")

    def __init__(
        self,
        name: Name,
        key: bytes,
        body: bytes,
        headers: Mapping[str, bytes] | None,
        wire_bytes: int,
        terms: PublishTerms,
        deadline: float,
        waiter: Waiter[Receipt],
    ) -> None:
        super().__init__(key, terms, wire_bytes, deadline)
        self._body = body
        self._headers = headers
        self._message: Chunk | None = None
        """The chunk with the first body and those that joined; made when this joins a frame. `_bodies` is a part of
        it."""
        self._header_fields = len(headers) if headers else 0
        self._waiters: list[tuple[Waiter[Receipt], Name, float]] = [(waiter, name, deadline)]
        """One for each body of `_message`, in order."""
        self._serialized: bytes | None = None

    def takes(self, other: PublishSingles) -> bool:
        """Returns whether `other`'s messages may join this chunk."""
        return (
            self.key == other.key
            and self._serialized is None
            and other._message is None
            and len(self._waiters) < CHUNK_MESSAGES_MAX
            and self._header_fields + other._header_fields <= CHUNK_HEADERS_MAX
            and self.cost_bytes + other.cost_bytes <= CHUNK_GATHER_BYTES_MAX
        )

    def take(self, other: PublishSingles) -> None:
        """Adds `other` to this chunk. `other` was in no frame yet, so it has one message."""
        if other._header_fields or self._header_fields:
            message = self._chunk()
            _pad_headers(message)
            message.headers.append(Headers(fields=other._headers))
        self._bodies.append(other._body)
        self._waiters += other._waiters
        self._header_fields += other._header_fields
        self.cost_bytes += other.cost_bytes
        self.deadline = min(self.deadline, other.deadline)

    @property
    def alive(self) -> bool:
        """Returns whether a caller still waits, and leaves out the messages of those that do not."""
        if self._serialized is not None:
            return True
        keep = [not waiter[0].done() for waiter in self._waiters]
        if not all(keep):
            message = self._chunk()
            self._waiters = _kept(self._waiters, keep)
            left = self._message = Chunk(bodies=_kept(message.bodies, keep))
            self._bodies = left.bodies
            if message.headers:
                left.headers.extend(_kept(message.headers, keep))
        return bool(self._waiters)

    def put(self, columns: Columns) -> None:
        self._chunk()
        super().put(columns)

    def chunk(self) -> bytes:
        if self._serialized is None:
            self._serialized = self._chunk().SerializeToString()
        return self._serialized

    def _chunk(self) -> Chunk:
        message = self._message
        if message is None:
            message = self._message = Chunk(bodies=(self._body,))
            self._bodies = message.bodies
            if self._headers:
                message.headers.append(Headers(fields=self._headers))
        return message

    def done(self, outcome: wire.StepOutcome, position: int, consumed: Iterator[int]) -> None:
        first = outcome.offsets[position]
        queues = outcome.queues[position]
        consumed_now, delayed = next(consumed, 0), self.delayed
        for index, (waiter, name, _) in enumerate(self._waiters):
            if not waiter.done():
                waiter.set_result(Receipt(name, first + index if first else 0, queues, consumed_now, 1, delayed))

    def fail(self, error: ShoalError) -> None:
        for waiter, _, _ in self._waiters:
            fail_waiter(waiter, error)

    def expire(self, now: float, error: ShoalError) -> None:
        later = float("inf")
        for waiter, _, deadline in self._waiters:
            if now >= deadline:
                fail_waiter(waiter, error)
            else:
                later = min(later, deadline)
        self.deadline = later


def _pad_headers(chunk: Chunk) -> None:
    """Adds empty headers until each body has one: a chunk has no headers, or one for each body."""
    while len(chunk.headers) < len(chunk.bodies):
        chunk.headers.add()


def _kept(items: Sequence[Item], keep: Sequence[bool]) -> list[Item]:
    return [item for item, kept in zip(items, keep, strict=True) if kept]


def headers_bytes(headers: Mapping[str, bytes]) -> int:
    """Returns the serialized size of one message's headers."""
    return Headers(fields=headers).ByteSize() + 4
