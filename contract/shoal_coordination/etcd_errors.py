"""etcd's failures as ours: the adapter that meets foreign errors.

Statuses and texts are etcd's (api/v3rpc/rpctypes/error.go). Where its errors share a status, the text decides.
"""

from __future__ import annotations

import grpc

from shoal_contract.errors import Conflict, ShoalError, Unauthenticated
from shoal_contract.grpc_errors import from_rpc_error

_NO_LOGIN = ("user name is empty", "invalid user ID or password", "invalid auth token")
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_NOT_NOW = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


def translate(error: grpc.aio.AioRpcError, endpoint: str) -> ShoalError:
    """The typed error of a failed call to `endpoint`; its sentence names etcd and the endpoint."""
    details = error.details() or ""
    failure = from_rpc_error(error)
    if any(text in details for text in _NO_LOGIN):
        failure = Unauthenticated(details)
    elif error.code() in _NOT_NOW:
        failure = Conflict(details)
    return type(failure)(f"etcd at {endpoint}: {failure.message}", subject=endpoint)


def token_is_stale(error: grpc.aio.AioRpcError) -> bool:
    """The server refused the token before it did anything: log in again and repeat, reads and writes alike."""
    return any(text in (error.details() or "") for text in _STALE_TOKEN)


def login_is_off(error: grpc.aio.AioRpcError) -> bool:
    """The cluster has authentication switched off: calls need no token."""
    return "authentication is not enabled" in (error.details() or "")
