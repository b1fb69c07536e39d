"""Defines the client's one seam to a cluster: a session to a slice, a unary call, a watch of the map.

gRPC is one transport (grpc.py). An embedded broker, a simulator or a test stands here with another one.

A transport raises ShoalError only: the error that the other side gave, else Unavailable for whatever did not arrive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from shoal_contract.wire.redirector_pb2 import WatchMapResponse
from shoal_contract.wire.slice_pb2 import SessionRequest, SessionResponse, WatchRequest, WatchResponse

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Received = TypeVar("Received", covariant=True)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """Names a unary method of the contract, as /package.Service/Method, with the types of its messages."""

    path: str
    request: type[Request]
    response: type[Response]


class Stream(Protocol[Received]):
    """Brings what the other side sends, in order. It may be open before the other side is reached."""

    async def read(self) -> Received | None:
        """Returns the next message; None once the other side has ended the stream. While nothing reads, what comes is
        held back there, beyond a bound. Raises ShoalError if the stream is lost or refused, asyncio.CancelledError
        after `cancel`."""

    def cancel(self) -> None:
        """Ends the stream from here, at once: reads and writes under way are cancelled. May be called twice."""

    async def close(self) -> None:
        """Frees what the stream holds. Nothing is called after this."""


class SessionStream(Stream[SessionResponse], Protocol):
    """Is one stream of a session: it brings answers and deliveries, and takes frames."""

    async def write(self, request: SessionRequest) -> None:
        """Sends a request, behind those written before; waits while the other side takes no more. Raises ShoalError if
        the stream is lost (`read` tells why), asyncio.CancelledError if it is cancelled meanwhile."""


class Transport(Protocol):
    """Reaches slices and redirectors by their address, host:port, as the map and the application name them.

    It belongs to one connection and its event loop, and is closed with it.
    """

    def open_session(self, address: str) -> SessionStream:
        """Opens a stream to a slice, which no other stream and no call holds up."""

    def watch_map(self, address: str) -> Stream[WatchMapResponse]:
        """Opens a stream of maps from a redirector."""

    def watch(self, address: str, request: WatchRequest) -> Stream[WatchResponse]:
        """Opens a stream of what a slice tells of members or counts."""

    async def call(
        self, address: str, method: Method[Request, Response], request: Request, timeout_s: float, apart: str = ""
    ) -> Response:
        """Makes one call and returns its answer. Where the caller is cancelled, the call ends on the other side, too.
        `apart`: calls with the same word here share what they travel over, and hold up no others. Raises ShoalError:
        DeadlineExceeded after `timeout_s` seconds."""
        ...

    async def close(self) -> None:
        """Frees what calls keep open. Streams are closed by themselves, before this."""
