"""Carries typed errors across gRPC: a failed unary call or stream has `shoal.v1.Error` in its trailing metadata.

Belongs here: ShoalError <-> gRPC status. Does not: errors inside session frames (errors.py), other services' errors
(the adapter that met them), how a server ends a call (shoal_runtime.aborting).
"""

from __future__ import annotations

import re
from typing import Final

import grpc

from shoal_contract import errors
from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import METADATA_KEY, ShoalError
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


NO_REDIRECTOR: Final = (
    "this is no redirector, perhaps a slice; clients connect to the redirector's gRPC port, 7400 unless it was told"
    " otherwise"
)
"""What to say of a server that does not have a redirector's calls."""


def from_rpc_error(error: grpc.RpcError, unknown: str = "") -> ShoalError:
    """Returns the typed error of a failed call, sync or aio. Without our metadata it goes by the status, and names the
    status in the message. `unknown`: what to say of a server that does not have the call."""
    for key, value in _trailing_metadata(error):
        if key == METADATA_KEY and isinstance(value, bytes):
            try:
                return errors.from_wire_bytes(value)
            except DecodeError:
                break
    code = error.code() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    if unknown and code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.Malformed(unknown)
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
    return errors.shown_text(details or "no details")


_SPEAKS_HTTP: Final = re.compile(r"ipv[46]:(\S+): Failed parsing HTTP/2.*(?:frame type 80|http1)")
"""Matches gRPC's message for a peer that begins its answer with "HTTP/1": type 80 is the letter P."""
_HTTP_PORT: Final = (
    "that is an HTTP port; clients connect to the redirector's gRPC port, 7400 unless it was told otherwise"
)
