"""The requests that a Change frame is made of, each with who waits for it: declare, bind, unbind, publish, drop, purge.

A request knows its step (requests of equal steps share one), its size, how its step is encoded and how its part of the
outcome is read. Not here: gathering (gather.py), sending (slice_session.py), deciding what to do about a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from shoal.limits import CHUNK_GATHER_BYTES_MAX, REQUEST_OVERHEAD_BYTES
from shoal.messages import Receipt, Start
from shoal.waiting import fail_waiter
from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.limits import CHUNK_MESSAGES_MAX
from shoal_contract.names import Name
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Headers, QueueOptions

StepKind = tuple[Any, ...]
"""The verb and its options: what requests must share to share a step."""


class Request:
    """One request of the wire: all or nothing. `operations`: its keys (at least 1)."""

    __slots__ = ("cost_bytes", "deadline", "kind", "operations")
    verb: ClassVar[str]

    def __init__(self, kind: StepKind, operations: int, wire_bytes: int, deadline: float) -> None:
        self.kind = kind
        self.operations = operations
        self.cost_bytes = wire_bytes + REQUEST_OVERHEAD_BYTES
        self.deadline = deadline
        """Event loop time of the first waiter's deadline."""

    @property
    def alive(self) -> bool:
        """Somebody still waits. A dead request that was not sent yet is left out."""
        raise NotImplementedError

    def done(self, outcome: wire.StepOutcome, position: int, live: Iterator[int]) -> None:
        """Answered; its columns begin at `position`."""
        raise NotImplementedError

    def fail(self, error: ShoalError) -> None:
        raise NotImplementedError

    def expire(self, now: float, error: ShoalError) -> None:
        """Fails who waits beyond their deadline."""
        if now >= self.deadline:
            self.fail(error)

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[Any]) -> wire.Step:
        raise NotImplementedError


class QueueRequest(Request):
    """Base of requests about one queue and keys of it; one waiter."""

    __slots__ = ("future", "keys", "queue")

    def __init__(self, kind: StepKind, queue: bytes, keys: Sequence[bytes], deadline: float) -> None:
        size = len(queue) + 4 + sum(map(len, keys)) + 4 * len(keys)
        super().__init__(kind, max(1, len(keys)), size, deadline)
        self.queue = queue
        self.keys = keys
        self.future: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return not self.future.done()

    def done(self, outcome: wire.StepOutcome, position: int, live: Iterator[int]) -> None:
        if not self.future.done():
            self.future.set_result(outcome.offsets[position : position + len(self.keys)])

    def fail(self, error: ShoalError) -> None:
        fail_waiter(self.future, error)


class DeclareRequest(QueueRequest):
    __slots__ = ()
    verb = "declare"

    def __init__(self, queue: bytes, expires_after_s: int, deadline: float) -> None:
        super().__init__((DeclareRequest, expires_after_s), queue, (), deadline)

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[DeclareRequest]) -> wire.Step:
        options = QueueOptions(expires_after_s=kind[1])
        return wire.Step(declares=wire.Declares(queues=[request.queue for request in requests], options=options))


class DropRequest(QueueRequest):
    __slots__ = ()
    verb = "drop"

    def __init__(self, queue: bytes, deadline: float) -> None:
        super().__init__((DropRequest,), queue, (), deadline)

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[DropRequest]) -> wire.Step:
        return wire.Step(drops=wire.Drops(queues=[request.queue for request in requests]))


class PurgeRequest(QueueRequest):
    """`position`: where to go on. Answered with (messages dropped, position of what is left; 0: nothing)."""

    __slots__ = ("_position",)
    verb = "purge"

    def __init__(self, queue: bytes, position: int, deadline: float) -> None:
        super().__init__((PurgeRequest,), queue, (), deadline)
        self._position = position

    def done(self, outcome: wire.StepOutcome, position: int, live: Iterator[int]) -> None:
        if not self.future.done():
            self.future.set_result((outcome.messages[position], outcome.positions[position]))

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[PurgeRequest]) -> wire.Step:
        positions = [request._position for request in requests]
        return wire.Step(purges=wire.Purges(queues=[request.queue for request in requests], positions=positions))


class BindRequest(QueueRequest):
    __slots__ = ()
    verb = "bind"

    def __init__(self, queue: bytes, keys: Sequence[bytes], start: Start, deadline: float) -> None:
        super().__init__((BindRequest, start), queue, keys, deadline)

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[BindRequest]) -> wire.Step:
        queues, counts, keys = _columns(requests)
        start, value = kind[1]
        binds = wire.Binds(queues=queues, key_counts=counts, keys=keys, start=start, start_value=value)
        return wire.Step(binds=binds)


class UnbindRequest(QueueRequest):
    __slots__ = ()
    verb = "unbind"

    def __init__(self, queue: bytes, keys: Sequence[bytes], discard: bool, deadline: float) -> None:
        super().__init__((UnbindRequest, discard), queue, keys, deadline)

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[UnbindRequest]) -> wire.Step:
        queues, counts, keys = _columns(requests)
        return wire.Step(unbinds=wire.Unbinds(queues=queues, key_counts=counts, keys=keys, discard=kind[1]))


def _columns(requests: Sequence[QueueRequest]) -> tuple[list[bytes], list[int], list[bytes]]:
    counts = [len(request.keys) for request in requests]
    keys = [key for request in requests for key in request.keys]
    return [request.queue for request in requests], [] if len(keys) == len(counts) == sum(counts) else counts, keys


class PublishRequest(Request):
    """Base of what goes to one key as one chunk. `rerouter` takes it when the slice does not own the key any more."""

    __slots__ = ("key",)
    verb = "publish"

    def __init__(self, key: bytes, mandatory: bool, wire_bytes: int, deadline: float) -> None:
        super().__init__((PublishRequest, mandatory), 1, wire_bytes + len(key) + 8, deadline)
        self.key = key

    def chunk(self) -> bytes:
        """Serialized."""
        raise NotImplementedError

    @staticmethod
    def encode(kind: StepKind, requests: Sequence[PublishRequest]) -> wire.Step:
        keys = [request.key for request in requests]
        chunks = [request.chunk() for request in requests]
        return wire.Step(publishes=wire.Publishes(keys=keys, chunks=chunks, mandatory=kind[1]))


class PublishChunk(PublishRequest):
    """A whole chunk, encoded by the caller; one waiter."""

    __slots__ = ("_chunk", "_count", "_name", "future")

    def __init__(self, name: Name, key: bytes, chunk: bytes, count: int, mandatory: bool, deadline: float) -> None:
        super().__init__(key, mandatory, len(chunk), deadline)
        self._name = name
        self._chunk = chunk
        self._count = count
        self.future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    @property
    def alive(self) -> bool:
        return not self.future.done()

    def chunk(self) -> bytes:
        return self._chunk

    def done(self, outcome: wire.StepOutcome, position: int, live: Iterator[int]) -> None:
        receipt = Receipt(self._name, outcome.offsets[position], outcome.queues[position], next(live, 0), self._count)
        if not self.future.done():
            self.future.set_result(receipt)

    def fail(self, error: ShoalError) -> None:
        fail_waiter(self.future, error)


class PublishSingles(PublishRequest):
    """Single messages to one key, made one after the other while a frame gathers: one chunk, many waiters."""

    __slots__ = ("_bodies", "_encoded", "_headers", "_headers_given", "_waiters", "future")

    def __init__(
        self,
        name: Name,
        key: bytes,
        body: bytes,
        headers: Mapping[str, bytes] | None,
        wire_bytes: int,
        mandatory: bool,
        deadline: float,
    ) -> None:
        super().__init__(key, mandatory, wire_bytes, deadline)
        self.future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._bodies = [body]
        self._headers = [headers]
        self._headers_given = bool(headers)
        self._waiters: list[tuple[asyncio.Future[Receipt], Name, float]] = [(self.future, name, deadline)]
        self._encoded: bytes | None = None

    def takes(self, other: PublishSingles) -> bool:
        """Whether `other`'s message may join this chunk."""
        return (
            self.key == other.key
            and self._encoded is None
            and len(self._bodies) < CHUNK_MESSAGES_MAX
            and self.cost_bytes + other.cost_bytes <= CHUNK_GATHER_BYTES_MAX
        )

    def take(self, other: PublishSingles) -> None:
        self._bodies += other._bodies
        self._headers += other._headers
        self._headers_given |= other._headers_given
        self._waiters += other._waiters
        self.cost_bytes += other.cost_bytes
        self.deadline = min(self.deadline, other.deadline)

    @property
    def alive(self) -> bool:
        if self._encoded is not None:
            return True
        keep = [not waiter[0].done() for waiter in self._waiters]
        if not all(keep):
            self._bodies = [body for body, kept in zip(self._bodies, keep, strict=True) if kept]
            self._headers = [fields for fields, kept in zip(self._headers, keep, strict=True) if kept]
            self._waiters = [waiter for waiter, kept in zip(self._waiters, keep, strict=True) if kept]
        return bool(self._waiters)

    def chunk(self) -> bytes:
        if self._encoded is None:
            self._encoded = encode_chunk(self._bodies, self._headers if self._headers_given else ())
        return self._encoded

    def done(self, outcome: wire.StepOutcome, position: int, live: Iterator[int]) -> None:
        first = outcome.offsets[position]
        queues = outcome.queues[position]
        sessions = next(live, 0)
        for index, (future, name, _) in enumerate(self._waiters):
            if not future.done():
                future.set_result(Receipt(name, first + index if first else 0, queues, sessions))

    def fail(self, error: ShoalError) -> None:
        for future, _, _ in self._waiters:
            fail_waiter(future, error)

    def expire(self, now: float, error: ShoalError) -> None:
        later = float("inf")
        for future, _, deadline in self._waiters:
            if now >= deadline:
                fail_waiter(future, error)
            else:
                later = min(later, deadline)
        self.deadline = later


def headers_bytes(headers: Mapping[str, bytes]) -> int:
    """Serialized size of one message's headers."""
    return Headers(fields=headers).ByteSize() + 4
