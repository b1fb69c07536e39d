"""Translates etcd's failures into ours: the adapter that meets foreign errors.

Statuses and texts are etcd's (api/v3rpc/rpctypes/error.go). If its errors share a status, the text decides.
"""

from __future__ import annotations

import grpc

from shoal_contract.errors import Conflict, ShoalError, Unauthenticated
from shoal_contract.grpc_errors import from_rpc_error

_NO_LOGIN = ("user name is empty", "invalid user ID or password", "invalid auth token")
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_NOT_NOW = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


def translate(error: grpc.RpcError, endpoint: str) -> ShoalError:
    """Returns the typed error of a failed call to `endpoint`; its message names etcd and the endpoint."""
    details = _details(error)
    failure = from_rpc_error(error)
    if any(text in details for text in _NO_LOGIN):
        failure = Unauthenticated(details)
    elif isinstance(error, grpc.Call | grpc.aio.AioRpcError) and error.code() in _NOT_NOW:
        failure = Conflict(details)
    return type(failure)(f"etcd at {endpoint}: {failure.message}", subject=endpoint)


def token_is_stale(error: grpc.RpcError) -> bool:
    """Returns whether the server refused the token before it did anything: then log in again and repeat the call, a
    read or a write."""
    return any(text in _details(error) for text in _STALE_TOKEN)


def login_is_off(error: grpc.RpcError) -> bool:
    """Returns whether the cluster has authentication switched off: then calls need no token."""
    return "authentication is not enabled" in _details(error)


def _details(error: grpc.RpcError) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else str(error)
