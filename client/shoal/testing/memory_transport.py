"""Reaches a fake cluster without sockets: calls its methods, in the process and event loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from google.protobuf.message import Message

from shoal.testing.fake_slice import FakeSlice
from shoal.transport.base import Method, Request, Response
from shoal_contract.errors import BadCall, DeadlineExceeded, Unavailable
from shoal_contract.wire.redirector_pb2 import WatchMapRequest, WatchMapResponse
from shoal_contract.wire.slice_pb2 import SessionRequest, SessionResponse, WatchRequest, WatchResponse

if TYPE_CHECKING:
    from shoal.testing.fake_cluster import FakeRedirector

Received = TypeVar("Received", bound=Message)


class MemoryStream(Generic[Received]):
    """Reads what an asynchronous generator of the fake yields."""

    def __init__(self, responses: AsyncIterator[Received]) -> None:
        self._responses = cast("AsyncGenerator[Received]", responses)
        self._reading: asyncio.Future[Received | None] | None = None
        self._cancelled = False

    async def read(self) -> Received | None:
        """Returns the next message; None at the end. Raises asyncio.CancelledError after `cancel`."""
        if self._cancelled:
            raise asyncio.CancelledError
        self._reading = asyncio.ensure_future(anext(self._responses, None))
        try:
            received: Received | None = copied(await self._reading)
            return received
        finally:
            self._reading = None

    def cancel(self) -> None:
        """Ends the stream from here."""
        self._cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Ends the stream, and the fake's part of it."""
        self.cancel()
        await self._responses.aclose()


class MemorySession(MemoryStream[SessionResponse]):
    """Reads and writes a session's stream."""

    def __init__(self, slice_: FakeSlice) -> None:
        self._requests: asyncio.Queue[SessionRequest] = asyncio.Queue()
        super().__init__(slice_.Session(self._sent(), None))

    async def write(self, request: SessionRequest) -> None:
        """Sends a request. Raises Unavailable once the stream has ended."""
        if self._cancelled:
            raise Unavailable("the stream has ended")
        self._requests.put_nowait(copied(request))

    async def _sent(self) -> AsyncIterator[SessionRequest]:
        while True:
            yield await self._requests.get()


class MemoryTransport:
    """Reaches the slices and redirectors of one fake cluster by the addresses that its map names."""

    def __init__(self, slices: Mapping[str, FakeSlice], redirectors: Sequence[FakeRedirector]) -> None:
        self._slices = slices
        self._redirectors = redirectors

    def open_session(self, address: str) -> MemorySession:
        """Opens a stream to a slice. Raises Unavailable while it is away."""
        return MemorySession(self._slice_at(address))

    def watch_map(self, address: str) -> MemoryStream[WatchMapResponse]:
        """Opens a stream of maps. Raises Unavailable for an unknown address."""
        for redirector in self._redirectors:
            if redirector.address == address:
                return MemoryStream(redirector.WatchMap(WatchMapRequest(), None))
        raise Unavailable(f"there is no redirector at {address}")

    def watch(self, address: str, request: WatchRequest) -> MemoryStream[WatchResponse]:
        """Opens a watch of a slice."""
        return MemoryStream(self._slice_at(address).Watch(copied(request), cast("Any", None)))

    async def call(
        self, address: str, method: Method[Request, Response], request: Request, timeout_s: float, apart: str = ""
    ) -> Response:
        """Makes one call. Raises BadCall for one that the fake does not have."""
        _, service, name = method.path.split("/")
        slice_ = self._slice_at(address)
        do = getattr(slice_.admin if service.endswith("AdminService") else slice_, name, None)
        if do is None:
            raise BadCall(f"a fake cluster has no {name}; test it on a local cluster", subject=name)
        try:
            async with asyncio.timeout(timeout_s):
                return cast("Response", copied(await do(copied(request), None)))
        except TimeoutError:
            raise DeadlineExceeded(f"{method.path} at {address}") from None

    async def close(self) -> None:
        """Does nothing: calls keep nothing open."""

    def _slice_at(self, address: str) -> FakeSlice:
        for slice_ in self._slices.values():
            if slice_.address == address and not slice_.away:
                return slice_
        raise Unavailable(f"no slice answers at {address}")


def copied(message: Any) -> Any:
    """Returns a copy, as a wire does: neither side sees what the other does with its message later."""
    if message is None:
        return None
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
