"""Renews leases over a blocking connection to etcd: for one thread, and independent of every event loop.

Belongs here: choosing endpoints, login, one renewal. Does not: when to renew (lease_keeper.py), other calls
(client.py). grpc.aio knows only one event loop in a process, so a thread of its own needs gRPC's blocking client.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import Final

import grpc

from shoal_contract.errors import Unavailable
from shoal_coordination.channels import CHANNEL_OPTIONS, Credentials, log_in_request
from shoal_coordination.etcd_errors import login_is_off, token_is_stale, translate
from shoal_coordination.options import EtcdOptions
from shoal_coordination.wire import rpc_pb2 as wire
from shoal_coordination.wire import rpc_pb2_grpc as services
from shoal_runtime.channels import open_blocking_channel

# One request and one answer of a stream look like a single call on the wire. A single call waits in the calling thread,
# without the interpreter's lock; a stream needs two more threads, which a busy process may keep from running.
_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"


class LeaseConnection:
    """Renews leases over one channel at a time. After a failure it uses a channel to the next endpoint."""

    def __init__(self, options: EtcdOptions) -> None:
        self.endpoints = len(options.endpoints)
        self._options = options
        self._credentials = Credentials(options.tls)
        self._addresses = cycle(options.endpoints)
        self._channel: _Channel | None = None
        self._closed = False

    @property
    def proven(self) -> bool:
        """Returns whether the next call goes over a channel that has answered before."""
        channel = self._channel
        return channel is not None and channel.answered

    def renew(self, lease: int, within_s: float) -> int:
        """Sends one keepalive. Returns the seconds that the lease lives from now; 0: it is gone.

        Raises ShoalError if there is no answer within `within_s`; the next call then goes to the next endpoint.
        """
        channel = self._channel or self._open()
        try:
            return channel.renew(lease, time.monotonic() + within_s)
        except grpc.RpcError as error:
            self._leave()
            raise translate(error, channel.address) from error

    def close(self) -> None:
        """Cancels the call under way, and refuses later ones. May be called from any thread."""
        self._closed = True
        self._leave()

    def _open(self) -> _Channel:
        self._channel = channel = _Channel(next(self._addresses), self._options, self._credentials.now())
        if self._closed:
            self._leave()
            raise Unavailable("this connection to etcd is closed")
        return channel

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


class _Channel:
    """Holds a channel to one endpoint with its login."""

    def __init__(self, address: str, options: EtcdOptions, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.answered = False
        self._options = options
        self._channel = open_blocking_channel(address, CHANNEL_OPTIONS, credentials)
        self._keep_alive = self._channel.unary_unary(
            _KEEP_ALIVE,
            request_serializer=wire.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=wire.LeaseKeepAliveResponse.FromString,
        )
        self._token: str | None = None

    def renew(self, lease: int, until_s: float) -> int:
        """Returns the lease's new time to live. Raises grpc.RpcError."""
        try:
            left_s = self._send(lease, until_s)
        except grpc.RpcError as error:
            if not token_is_stale(error):
                raise
            self._token = None
            left_s = self._send(lease, until_s)
        self.answered = True
        return left_s

    def close(self) -> None:
        self._channel.close()

    def _send(self, lease: int, until_s: float) -> int:
        metadata = self._metadata(until_s)
        request = wire.LeaseKeepAliveRequest(ID=lease)
        answer = self._keep_alive(request, timeout=_left_s(until_s), metadata=metadata)
        return max(0, answer.TTL)

    def _metadata(self, until_s: float) -> tuple[tuple[str, str], ...]:
        if not self._options.user:
            return ()
        if self._token is None:
            self._token = self._log_in(until_s)
        return (("token", self._token),) if self._token else ()

    def _log_in(self, until_s: float) -> str:
        stub = services.AuthStub(self._channel)
        try:
            return stub.Authenticate(log_in_request(self._options), timeout=_left_s(until_s)).token
        except grpc.RpcError as error:
            if login_is_off(error):
                return ""
            raise


def _left_s(until_s: float) -> float:
    """Returns the seconds left, but never 0, which would be no deadline at all for some gRPC calls."""
    return max(0.001, until_s - time.monotonic())
