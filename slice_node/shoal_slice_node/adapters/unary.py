"""Unary calls under admission: their requests are read only when there is room for them, and parsed in bounded time.

gRPC reads the request of a unary call before its handler runs, whatever its size and number. On the wire a unary call
is a stream of one message; served as such its message stays in the transport, behind flow control, until it is asked
for. So 600 calls of 1 MB at once cost 600 small contexts, not 600 MB.

Belongs here: how many at a time, reading, parsing, errors. Not here: what the calls do (slice_service, admin_service).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from shoal_contract.errors import DeadlineExceeded, Malformed, ResourceExhausted, ShoalError, TooLarge
from shoal_contract.grpc_errors import abort, send_headers
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire_count import Shape, count_fields
from shoal_slice_node.adapters.limits import (
    UNARY_AT_ONCE_MAX,
    UNARY_FIELDS_MAX,
    UNARY_LARGE_AT_ONCE_MAX,
    UNARY_LARGE_BYTES,
    UNARY_PER_CONNECTION_MAX,
    UNARY_READ_CROWDED_S,
    UNARY_READ_S,
    UNARY_WAITING_MAX,
    UNARY_WRITE_S,
)
from shoal_slice_node.adapters.requests import as_shoal_error

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)

_log = logging.getLogger(__name__)
_FLAT: Shape = {}


class Unary(NamedTuple):
    """One method: how its request is parsed, what answers it. `shape`: messages within the request, for the count."""

    request: type[Message]
    answer: Callable[[Any, Context], Awaitable[Message]]
    shape: Shape = _FLAT


class Admission:
    """UNARY_AT_ONCE_MAX calls at a time, UNARY_PER_CONNECTION_MAX of one connection; further ones wait unread, and the
    connections take turns. `large`: for requests of more than UNARY_LARGE_BYTES, which are in memory several times
    while they are worked on."""

    def __init__(self) -> None:
        self.large = asyncio.Semaphore(UNARY_LARGE_AT_ONCE_MAX)
        self._free = UNARY_AT_ONCE_MAX
        self._held: Counter[str] = Counter()
        """Places, by connection."""
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """The calls that wait, by connection: the first line has the next turn. None is empty."""
        self.waiting = 0

    @property
    def crowded(self) -> bool:
        """A call waits only because others have all places, not for those of its own connection."""
        return not self._free and self._next() is not None

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Raises ResourceExhausted where too many wait already."""
        if self.waiting >= UNARY_WAITING_MAX:
            raise ResourceExhausted(
                f"{self.waiting} calls wait for their turn; the limit is {UNARY_WAITING_MAX}",
                subject="unary calls",
                limit=UNARY_WAITING_MAX,
                value=self.waiting + 1,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(peer, deque()).append(turn)
        self.waiting += 1
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.cancelled():
                self._leave_line(peer, turn)
            else:
                self._take_back(peer)

    def _next(self) -> str | None:
        """The connection that has the next turn. Few are passed over: only few can have all places of one."""
        return next((peer for peer in self._lines if self._held[peer] < UNARY_PER_CONNECTION_MAX), None)

    def _give(self) -> None:
        while self._free and (peer := self._next()) is not None:
            line = self._lines.pop(peer)
            turn = line.popleft()
            if line:
                self._lines[peer] = line  # At the end.
            if turn.cancelled():
                continue  # Its task will hear of it.
            self._free -= 1
            self._held[peer] += 1
            self.waiting -= 1
            turn.set_result(None)

    def _take_back(self, peer: str) -> None:
        self._free += 1
        self._held[peer] -= 1
        if not self._held[peer]:
            del self._held[peer]
        self._give()

    def _leave_line(self, peer: str, turn: asyncio.Future[None]) -> None:
        self.waiting -= 1
        line = self._lines.get(peer)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[peer]


def unary_handlers(service: str, methods: Mapping[str, Unary], admission: Admission) -> grpc.GenericRpcHandler:
    """To be added to a server."""
    handlers = {name: _handler(method, admission) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, handlers)


def _handler(method: Unary, admission: Admission) -> grpc.RpcMethodHandler[Any, Any]:
    async def serve(_: object, context: Context) -> None:
        try:
            async with admission.place(context.peer()):
                data = await _read(context, admission)
                if len(data) <= UNARY_LARGE_BYTES:
                    answer = await method.answer(parse(method.request, data, method.shape), context)
                else:
                    async with admission.large:
                        answer = await method.answer(parse(method.request, data, method.shape), context)
                await _write(answer, context)
        except ShoalError as error:
            await abort(context, error)
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:
            await abort(context, as_shoal_error(error))

    return grpc.stream_stream_rpc_method_handler(serve)


async def _read(context: Context, admission: Admission) -> bytes:
    """Raises Malformed; DeadlineExceeded if the client takes too long to send it, sooner where others wait."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    looking: asyncio.TimerHandle

    def look() -> None:
        nonlocal looking
        if admission.crowded and not patience.expired():
            patience.reschedule(loop.time())
        looking = loop.call_later(UNARY_READ_CROWDED_S, look)

    looking = loop.call_later(UNARY_READ_CROWDED_S, look)
    try:
        async with asyncio.timeout(UNARY_READ_S) as patience:
            data = await context.read()
    except TimeoutError:
        waited_s = loop.time() - began_s
        others = "; other calls wait for its place" if waited_s < UNARY_READ_S else ""
        text = f"the request did not arrive within {waited_s:.1f} s{others}"
        raise DeadlineExceeded(text, subject="request") from None
    finally:
        looking.cancel()
    if data is grpc.aio.EOF:
        raise Malformed("the call has no request", subject="request")
    return bytes(data)


async def _write(answer: Message, context: Context) -> None:
    """Holds the call's place until the client takes its answer. Raises DeadlineExceeded if that takes too long."""
    try:
        async with asyncio.timeout(UNARY_WRITE_S):
            await send_headers(context)
            await context.write(answer.SerializeToString())
    except TimeoutError:
        raise DeadlineExceeded(f"the answer was not read within {UNARY_WRITE_S} s", subject="answer") from None


def parse(form: type[Request], data: bytes, shape: Shape) -> Request:
    """Raises Malformed, TooLarge."""
    if len(data) > PARSED_AT_ONCE_BYTES_MAX and count_fields(data, shape, UNARY_FIELDS_MAX) > UNARY_FIELDS_MAX:
        raise TooLarge(
            f"request of {len(data)} bytes has more than {UNARY_FIELDS_MAX} fields",
            subject="fields",
            limit=UNARY_FIELDS_MAX,
        )
    try:
        return _without_padding(form.FromString(data), len(data))
    except DecodeError:
        name = form.DESCRIPTOR.name
        raise Malformed(f"request of {len(data)} bytes is no {name}: it cannot be read", subject="request") from None


def _without_padding(request: Request, size_bytes: int) -> Request:
    """A message keeps fields that it does not know, for as long as it lives: where they are most of it, it is made anew
    without them."""
    if size_bytes <= PARSED_AT_ONCE_BYTES_MAX:
        return request
    request.DiscardUnknownFields()
    if 2 * request.ByteSize() >= size_bytes:
        return request
    return type(request).FromString(request.SerializeToString())
