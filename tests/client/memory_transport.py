"""A transport without sockets: it calls the fake cluster's methods, in the process and event loop of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Generic, TypeVar, cast

from google.protobuf.message import Message

from shoal.transport.base import Method, Request, Response
from shoal_contract.errors import DeadlineExceeded, Unavailable
from shoal_contract.wire.redirector_pb2 import WatchMapRequest, WatchMapResponse
from shoal_contract.wire.slice_pb2 import SessionRequest, SessionResponse, WatchRequest, WatchResponse
from tests.client.fake_cluster import FakeCluster, FakeRedirector
from tests.client.fake_slice import FakeSlice

Received = TypeVar("Received", bound=Message)


class MemoryStream(Generic[Received]):
    """What an asynchronous generator of the fake yields."""

    def __init__(self, responses: AsyncIterator[Received]) -> None:
        self._responses = cast("AsyncGenerator[Received]", responses)
        self._reading: asyncio.Future[Received | None] | None = None
        self._cancelled = False

    async def read(self) -> Received | None:
        if self._cancelled:
            raise asyncio.CancelledError
        self._reading = asyncio.ensure_future(anext(self._responses, None))
        try:
            received: Received | None = copied(await self._reading)
            return received
        finally:
            self._reading = None

    def cancel(self) -> None:
        self._cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        self.cancel()
        await self._responses.aclose()


class MemorySession(MemoryStream[SessionResponse]):
    def __init__(self, slice_: FakeSlice) -> None:
        self._requests: asyncio.Queue[SessionRequest] = asyncio.Queue()
        super().__init__(slice_.Session(self._sent(), cast("Any", None)))

    async def write(self, request: SessionRequest) -> None:
        if self._cancelled:
            raise Unavailable("the stream has ended")
        self._requests.put_nowait(copied(request))

    async def _sent(self) -> AsyncIterator[SessionRequest]:
        while True:
            yield await self._requests.get()


class MemoryTransport:
    """`cluster`: one that stands in memory, so that its addresses are names only."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def open_session(self, address: str) -> MemorySession:
        return MemorySession(self._slice_at(address))

    def watch_map(self, address: str) -> MemoryStream[WatchMapResponse]:
        return MemoryStream(self._redirector_at(address).WatchMap(WatchMapRequest(), None))

    def watch(self, address: str, request: WatchRequest) -> MemoryStream[WatchResponse]:
        return MemoryStream(self._slice_at(address).Watch(copied(request), cast("Any", None)))

    async def call(
        self, address: str, method: Method[Request, Response], request: Request, timeout_s: float
    ) -> Response:
        _, service, name = method.path.split("/")
        servicer = self._slice_at(address).admin if service.endswith("AdminService") else self._slice_at(address)
        try:
            async with asyncio.timeout(timeout_s):
                return cast("Response", copied(await getattr(servicer, name)(copied(request), None)))
        except TimeoutError:
            raise DeadlineExceeded(f"{method.path} at {address}") from None

    async def close(self) -> None:
        pass

    def _slice_at(self, address: str) -> FakeSlice:
        for slice_ in self._cluster.slices.values():
            if slice_.address == address:
                return slice_
        raise Unavailable(f"there is no slice at {address}")

    def _redirector_at(self, address: str) -> FakeRedirector:
        for redirector in self._cluster.redirectors:
            if redirector.address == address:
                return redirector
        raise Unavailable(f"there is no redirector at {address}")


def copied(message: Any) -> Any:
    """As over a wire: neither side sees what the other does with its message later."""
    if message is None:
        return None
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
