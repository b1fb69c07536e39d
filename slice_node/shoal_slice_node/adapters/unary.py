"""Serves unary calls under admission: reads their requests only when there is room, and parses them in bounded time.

gRPC reads the request of a unary call before its handler runs, whatever its size, and however many calls there are. On
the wire a unary call is a stream of one message. Served as a stream, its message stays in the transport, held back by
flow control, until the handler reads it. So 600 calls of 1 MB at once cost 600 small contexts, not 600 MB.

Belongs here: reading, parsing, errors, writing. Not here: which call is next (admission), what the calls do
(slice_service, admin_service).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from shoal_contract.errors import DeadlineExceeded, Malformed, ShoalError, TooLarge
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire_count import Shape, count_fields
from shoal_runtime.aborting import abort, send_headers, write
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.limits import (
    UNARY_ABORT_S,
    UNARY_FIELDS_MAX,
    UNARY_IN_MEMORY_TIMES,
    UNARY_LARGE_BYTES,
    UNARY_WRITE_CROWDED_S,
    UNARY_WRITE_S,
)
from shoal_slice_node.core.node.requests import as_shoal_error

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)

_log = logging.getLogger(__name__)
_FLAT: Shape = {}


def _nothing(_: object) -> int:
    return 0


class Call(NamedTuple):
    """Describes a call to its method. `peer`: the client's connection. `held`: callbacks that run once the client has
    the answer, or cannot get it any more: those of `push` are told of an exception then."""

    peer: str
    held: ExitStack


class Unary(NamedTuple):
    """Describes one method: how its request is parsed, and the function that answers it. `shape`: the messages within
    the request, for counting its fields. `kept_bytes`: returns about what a parsed request takes, besides its bytes, of
    a request with many small parts."""

    request: type[Message]
    answer: Callable[[Any, Call], Awaitable[Message]]
    shape: Shape = _FLAT
    kept_bytes: Callable[[Any], int] = _nothing


def unary_handlers(service: str, methods: Mapping[str, Unary], admission: Admission) -> grpc.GenericRpcHandler:
    """Returns the handler of a service's unary methods, to be added to a server."""
    handlers = {name: _handler(method, admission) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, handlers)


def _handler(method: Unary, admission: Admission) -> grpc.RpcMethodHandler[Any, Any]:
    async def serve(_: object, context: Context) -> None:
        with ExitStack() as held:
            try:
                peer = context.peer()
                async with admission.places.place(peer) as leave:
                    request = await _parsed(method, await _read(context, admission), admission)
                    with admission.read(peer, leave):
                        kept_bytes = method.kept_bytes(request)
                        with admission.working(kept_bytes + UNARY_IN_MEMORY_TIMES * request.ByteSize()):
                            try:
                                data = (await method.answer(request, Call(peer, held))).SerializeToString()
                            finally:
                                del request  # An error's traceback would keep it.
                        with admission.unread(len(data)):
                            await _write(data, context, admission)
            except ShoalError as error:
                await abort(context, error)
            except (grpc.aio.AbortError, grpc.aio.UsageError):
                raise
            except Exception as error:
                await abort(context, as_shoal_error(error))

    return grpc.stream_stream_rpc_method_handler(admission.unread_requests.counted(serve))


async def _parsed(method: Unary, data: bytes, admission: Admission) -> Any:
    """Parses a request; a large one in a turn of the loop of its own. Raises Malformed, TooLarge."""
    if len(data) <= UNARY_LARGE_BYTES:
        return parse(method.request, data, method.shape)
    async with admission.parsing:
        await asyncio.sleep(0)
        return parse(method.request, data, method.shape)


async def _read(context: Context, admission: Admission) -> bytes:
    """Reads the request. Raises Malformed if there is none; if the client takes too long to send it, DeadlineExceeded,
    or ResourceExhausted while others wait."""
    async with admission.patience.waiting(context.peer(), "sent"):
        data = await context.read()
    if data is grpc.aio.EOF:
        raise Malformed("the call has no request", subject="request")
    admission.unread_requests.read(context.peer(), len(data), first=True)
    return bytes(data)


async def _write(data: bytes, context: Context, admission: Admission) -> None:
    """Writes the answer. Ends the call if the client takes too long to read it, sooner where others wait."""
    try:
        async with _patience(lambda: admission.crowded_by_answers):
            await send_headers(context)
            await write(context, data)
        admission.unread_requests.answered(len(data))
    except DeadlineExceeded as error:
        admission.places.blame(context.peer())
        await abort(context, error, UNARY_ABORT_S)


@asynccontextmanager
async def _patience(crowded: Callable[[], bool]) -> AsyncIterator[None]:
    """Bounds how long an answer is written. Raises DeadlineExceeded, also where others wait: the call has no place any
    more, and others wait only for the memory that it holds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    looking: asyncio.TimerHandle

    def look() -> None:
        nonlocal looking
        if crowded() and not patience.expired():
            patience.reschedule(loop.time())
        looking = loop.call_later(UNARY_WRITE_CROWDED_S, look)

    looking = loop.call_later(UNARY_WRITE_CROWDED_S, look)
    try:
        async with asyncio.timeout(UNARY_WRITE_S) as patience:
            yield
    except TimeoutError:
        waited_s = loop.time() - began_s
        others = "; other calls wait for its room" if waited_s < UNARY_WRITE_S else ""
        raise DeadlineExceeded(f"the answer was not read within {waited_s:.1f} s{others}", subject="answer") from None
    finally:
        looking.cancel()


def parse(form: type[Request], data: bytes, shape: Shape) -> Request:
    """Parses a request, after counting the fields of a large one. Raises Malformed, TooLarge."""
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
    """Returns the request; a large one without its unknown fields, which a message keeps as long as it lives. Where
    they were more than half of its bytes, the request is made anew, so that their memory is freed."""
    if size_bytes <= PARSED_AT_ONCE_BYTES_MAX:
        return request
    request.DiscardUnknownFields()
    if 2 * request.ByteSize() >= size_bytes:
        return request
    return type(request).FromString(request.SerializeToString())
