"""Carries typed errors across gRPC: a failed unary call or stream has `shoal.v1.Error` in its trailing metadata.

Belongs here: ShoalError <-> gRPC status. Does not: errors inside session frames (errors.py), other services' errors
(the adapter that met them).
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, NoReturn

import grpc

from shoal_contract import errors
from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import METADATA_KEY, ShoalError, cut_text
from shoal_contract.hang_up import hang_up
from shoal_contract.limits import ABORT_S, STATUS_TEXT_BYTES_MAX
from shoal_contract.patience import patience_for
from shoal_contract.wire import common_pb2 as wire

_STATUS: Final[dict[wire.ErrorCode.ValueType, grpc.StatusCode]] = {
    wire.ERROR_CODE_NOT_OWNER: grpc.StatusCode.FAILED_PRECONDITION,
    wire.ERROR_CODE_NOT_LEADER: grpc.StatusCode.FAILED_PRECONDITION,
    wire.ERROR_CODE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    wire.ERROR_CODE_FENCED: grpc.StatusCode.ABORTED,
    wire.ERROR_CODE_DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    wire.ERROR_CODE_RESOURCE_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    wire.ERROR_CODE_INVALID_NAME: grpc.StatusCode.INVALID_ARGUMENT,
    wire.ERROR_CODE_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    wire.ERROR_CODE_UNROUTABLE: grpc.StatusCode.NOT_FOUND,
    wire.ERROR_CODE_NO_SUCH_QUEUE: grpc.StatusCode.NOT_FOUND,
    wire.ERROR_CODE_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    wire.ERROR_CODE_CROSS_SLICE: grpc.StatusCode.INVALID_ARGUMENT,
    wire.ERROR_CODE_OUT_OF_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    wire.ERROR_CODE_MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    wire.ERROR_CODE_UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    wire.ERROR_CODE_PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    wire.ERROR_CODE_CORRUPT: grpc.StatusCode.DATA_LOSS,
}

# For a status that comes without our metadata: from gRPC itself, or from something between client and server.
_FALLBACK: Final[dict[grpc.StatusCode, type[ShoalError]]] = {
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.ABORTED: errors.Unavailable,
    grpc.StatusCode.INTERNAL: errors.Unavailable,
    grpc.StatusCode.UNKNOWN: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    grpc.StatusCode.INVALID_ARGUMENT: errors.Malformed,
    grpc.StatusCode.UNIMPLEMENTED: errors.Malformed,
    grpc.StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    grpc.StatusCode.ALREADY_EXISTS: errors.Conflict,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
}


def status_of(error: ShoalError) -> grpc.StatusCode:
    """Returns the gRPC status that goes with an error; UNKNOWN for the bare base class."""
    return _STATUS.get(error.code, grpc.StatusCode.UNKNOWN)


async def send_headers(context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Sends the headers of a call. Call it first where a call may be aborted while a response is being written.

    gRPC sends the headers with the first response, and knows this only when that response is written. An abort before
    that tries to send them again, which fails: the client would never hear of the abort.
    """
    await context.send_initial_metadata(())


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: ShoalError, within_s: float = ABORT_S) -> NoReturn:
    """Ends the call with the error's status and metadata. Raises grpc's own AbortError, which must not be caught.

    The client gets the error after what was written before. If it does not read that within `within_s` seconds, its
    connection is shut down, which ends all its calls; so only time in which this process ran counts. The call is then
    cancelled: raises CancelledError."""
    # gRPC drops a call with trailers above 8 KiB, and the error with it: its texts are cut, here and in `to_wire`.
    # A traceback refers to frames that hold the request, and through a task back to the error: such a cycle keeps MiBs
    # until the garbage collector runs, which is seldom.
    error.__traceback__ = error.__context__ = None
    sent = error.to_wire()
    text = cut_text(sent.message, STATUS_TEXT_BYTES_MAX)
    try:
        async with patience_for(within_s):
            await context.abort(status_of(error), text, ((METADATA_KEY, sent.SerializeToString()),))
    except TimeoutError:
        await hang_up(context.peer())
        raise asyncio.CancelledError("the client did not read: it was hung up on") from None
    except grpc.aio.UsageError:  # The call was aborted before, and its connection was shut down meanwhile.
        raise asyncio.CancelledError("the call has been aborted already") from None
    raise AssertionError("abort returned")


def from_rpc_error(error: grpc.RpcError) -> ShoalError:
    """Returns the typed error of a failed call, sync or aio. Without our metadata it goes by the status, and names the
    status in the message."""
    for key, value in _trailing_metadata(error):
        if key == METADATA_KEY and isinstance(value, bytes):
            try:
                return errors.from_wire_bytes(value)
            except DecodeError:
                break
    code = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    cls = _FALLBACK.get(code, errors.Unavailable)
    return cls(f"{code.name}: {_details(error)}")


def _trailing_metadata(error: grpc.RpcError) -> list[tuple[str, str | bytes]]:
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return []
    return [(pair[0], pair[1]) for pair in error.trailing_metadata() or ()]


def _details(error: grpc.RpcError) -> str:
    details = error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else str(error)
    if details and (speaks_http := _SPEAKS_HTTP.search(details)):
        return f"{speaks_http[1]} answers HTTP, not gRPC: {_HTTP_PORT}"
    return details or "no details"


_SPEAKS_HTTP: Final = re.compile(r"ipv[46]:(\S+): Failed parsing HTTP/2.*(?:frame type 80|http1)")
"""Matches gRPC's message for a peer that begins its answer with "HTTP/1": type 80 is the letter P."""
_HTTP_PORT: Final = (
    "that is an HTTP port; clients connect to the redirector's gRPC port, 7400 unless it was told otherwise"
)
