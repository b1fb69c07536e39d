"""Carries everything over gRPC: the transport that applications get. No other module of the client imports gRPC.

Every stream has a channel of its own, so that a slow stream never holds up another; calls share one for each address
and each use that stands apart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message

from shoal.core.refusals import connection_cut
from shoal.limits import BACKOFF_MAX_S, KEEPALIVE_S, KEEPALIVE_TIMEOUT_S
from shoal.transport.base import Method, Request, Response
from shoal_contract.errors import Unavailable
from shoal_contract.grpc_errors import NO_REDIRECTOR, from_rpc_error
from shoal_contract.limits import FRAME_BYTES_MAX, REQUEST_BYTES_MAX
from shoal_contract.wire.redirector_pb2 import WatchMapRequest, WatchMapResponse
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_contract.wire.slice_pb2 import SessionRequest, SessionResponse, WatchRequest, WatchResponse
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime.channels import check_not_forked, open_channel

if TYPE_CHECKING:
    from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceAsyncStub
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

Received = TypeVar("Received", bound=Message)
Call = (
    grpc.aio.UnaryStreamCall[WatchMapRequest, Received]
    | grpc.aio.UnaryStreamCall[WatchRequest, Received]
    | grpc.aio.StreamStreamCall[SessionRequest, Received]
)

NO_WATCH: Final = "this slice is of a version that tells no members: update it"
"""What to say of a slice that does not have the call Watch."""

OPTIONS: Final[list[tuple[str, int]]] = [
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.max_pings_without_data", 0),
    # Its own connection: otherwise channels of one process would share one, with its backoff and its flow control.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", int(BACKOFF_MAX_S * 1000)),
    ("grpc.enable_retries", 0),
]


class GrpcTransport:
    """Opens channels when they are first needed. Channels of calls stay until `close`: one for each address ever
    called, which are leaders and redirectors, and each use that stands apart. Raises Unavailable in a process that was
    forked from one that had some."""

    def __init__(self) -> None:
        check_not_forked()
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        """Address and `apart` -> the channel of these calls."""
        self._closed = False

    def open_session(self, address: str) -> GrpcSession:
        """Opens a stream to a slice, on a channel of its own."""
        channel = open_channel(address, OPTIONS)
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        return GrpcSession(channel, stub.Session())

    def watch_map(self, address: str) -> GrpcStream[WatchMapResponse]:
        """Opens a stream of maps, on a channel of its own."""
        channel = open_channel(address, OPTIONS)
        stub: RedirectorServiceAsyncStub = RedirectorServiceStub(channel)
        return GrpcStream(channel, stub.WatchMap(WatchMapRequest()), NO_REDIRECTOR)

    def watch(self, address: str, request: WatchRequest) -> GrpcStream[WatchResponse]:
        """Opens a stream of what a slice tells, on a channel of its own."""
        channel = open_channel(address, OPTIONS)
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        return GrpcStream(channel, stub.Watch(request), NO_WATCH)

    async def call(
        self, address: str, method: Method[Request, Response], request: Request, timeout_s: float, apart: str = ""
    ) -> Response:
        """Makes one call. Raises ShoalError; Unavailable if the transport is closed meanwhile."""
        channel = self._channels.get((address, apart))
        if channel is None:
            channel = self._channels[address, apart] = open_channel(address, OPTIONS)
        call: grpc.aio.UnaryUnaryMultiCallable[Request, Response] = channel.unary_unary(
            method.path, request_serializer=_serialized, response_deserializer=method.response.FromString
        )
        try:
            return await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or task is None or task.cancelling():
                raise
            raise connection_cut() from None  # gRPC cancels the calls of a channel that is closed.

    async def close(self) -> None:
        """Closes the channels of calls."""
        self._closed = True
        for channel in self._channels.values():
            await channel.close()


class GrpcStream(Generic[Received]):
    """Reads a stream, and owns its channel."""

    def __init__(self, channel: grpc.aio.Channel, call: Call[Received], unknown: str = "") -> None:
        """`unknown`: what to say of a server that does not have the call."""
        self._unknown = unknown
        self._channel = channel
        self._call = call

    async def read(self) -> Received | None:
        """Returns the next message; None at the end. Raises ShoalError; asyncio.CancelledError after `cancel`."""
        try:
            received = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._unknown) from None
        return cast("Received", received) if isinstance(received, Message) else None

    def cancel(self) -> None:
        """Cancels the call."""
        self._call.cancel()

    async def close(self) -> None:
        """Cancels the call and closes the channel."""
        self._call.cancel()
        await self._channel.close()


class GrpcSession(GrpcStream[SessionResponse]):
    """Reads and writes a session's stream."""

    def __init__(
        self, channel: grpc.aio.Channel, call: grpc.aio.StreamStreamCall[SessionRequest, SessionResponse]
    ) -> None:
        super().__init__(channel, call)
        self._session = call
        self._first: asyncio.Future[None] | None = None
        """The write that waits for the connection; those behind it find one."""

    async def write(self, request: SessionRequest) -> None:
        """Sends a request. Raises ShoalError if the stream is lost; asyncio.CancelledError if it is cancelled while it
        connects."""
        try:
            if self._first is None:
                self._first = asyncio.ensure_future(self._session.write(request))
                await self._first
            else:
                await self._session.write(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except (asyncio.InvalidStateError, grpc.aio.UsageError):
            raise Unavailable("the stream has ended") from None

    def cancel(self) -> None:
        """Cancels the call, and a write that waits for the connection: gRPC's own waits for ever where the call is
        cancelled before its connection stands."""
        if self._first is not None:
            self._first.cancel()
        super().cancel()

    async def close(self) -> None:
        """Cancels the call and closes the channel."""
        self.cancel()
        await super().close()


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
