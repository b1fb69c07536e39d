"""The fake cluster of `shoal.testing` behind real gRPC servers, all on loopback in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc.aio

from shoal.testing import fake_cluster
from shoal.testing.limits import PARTITIONS
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceServicer, add_RedirectorServiceServicer_to_server
from shoal_runtime.grpc_server import listen, new_server
from tests.client.fake_slice import FakeSlice

__all__ = ["PARTITIONS", "FakeCluster", "FakeRedirector"]


class FakeRedirector(fake_cluster.FakeRedirector, RedirectorServiceServicer):
    def __init__(self, cluster: fake_cluster.FakeCluster, number: int) -> None:
        super().__init__(cluster, number)
        self._server: grpc.aio.Server | None = None
        self.address = "127.0.0.1:0"

    async def start(self) -> None:
        self._server = new_server(calls_max=100)
        add_RedirectorServiceServicer_to_server(self, self._server)
        self.address = listen(self._server, self.address)
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=0)

    async def Locate(self, request: wire.LocateRequest, context: Any) -> wire.LocateResponse:  # noqa: N802 - gRPC's name
        raise NotImplementedError("this library does not ask it")


class FakeCluster(fake_cluster.FakeCluster):
    slices: dict[str, FakeSlice]  # type: ignore[assignment]  # `new_slice` makes these
    redirectors: list[FakeRedirector]  # type: ignore[assignment]  # `new_redirector` makes these

    def new_slice(self, name: str, owner_of: Callable[[bytes], str], version: Callable[[], int]) -> FakeSlice:
        return FakeSlice(name, owner_of, version)  # type: ignore[abstract]  # no unary calls

    def new_redirector(self, number: int) -> FakeRedirector:
        return FakeRedirector(self, number)

    def add(self, name: str) -> FakeSlice:
        super().add(name)
        return self.slices[name]

    def owner_of(self, key: str) -> FakeSlice:
        return self.slices[super().owner_of(key).name]

    async def start(self) -> None:
        for slice_ in self.slices.values():
            await slice_.start()
        for redirector in self.redirectors:
            await redirector.start()

    async def stop(self) -> None:
        for slice_ in self.slices.values():
            slice_.answering.set()
            await slice_.stop()
        for redirector in self.redirectors:
            await redirector.stop()
