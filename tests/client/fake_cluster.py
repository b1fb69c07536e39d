"""A fake cluster: slices, a map, and redirectors that serve it, all on loopback in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import grpc.aio

from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceServicer, add_RedirectorServiceServicer_to_server
from shoal_runtime.grpc_server import listen, new_server
from tests.client.fake_slice import FakeSlice

PARTITIONS = 64


class FakeRedirector(RedirectorServiceServicer):
    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._server: grpc.aio.Server | None = None
        self.address = "127.0.0.1:0"
        self.watches = 0

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

    async def WatchMap(  # noqa: N802 - gRPC's name
        self, request: wire.WatchMapRequest, context: Any
    ) -> AsyncIterator[wire.WatchMapResponse]:
        self.watches += 1
        sent: PartitionMap | None = None
        while True:
            changed = self._cluster.changed
            current = self._cluster.map
            yield self._cluster.response(sent)
            sent = current
            await changed.wait()


class FakeCluster:
    """`seen[slice]`: the map as that slice sees it; a test may let it lag behind."""

    def __init__(self, slice_names: list[str]) -> None:
        self.map = PartitionMap.even(slice_names, PARTITIONS)
        self.changed = asyncio.Event()
        self.seen: dict[str, PartitionMap] = {}
        self.slices: dict[str, FakeSlice] = {}
        for name in slice_names:
            self.add(name)
        self.redirectors = [FakeRedirector(self), FakeRedirector(self)]

    def add(self, name: str) -> FakeSlice:
        """A slice that owns nothing yet."""
        self.seen[name] = self.map

        def owner_of(key: bytes) -> str:
            return self.seen[name].owner_of(key)

        self.slices[name] = FakeSlice(name, owner_of, lambda: self.seen[name].version)  # type: ignore[abstract]  # no unary calls
        return self.slices[name]

    async def start(self) -> None:
        for slice_ in self.slices.values():
            await slice_.start()
        for redirector in self.redirectors:
            await redirector.start()

    def stand_in_memory(self) -> None:
        """Gives addresses that only a MemoryTransport reaches, in place of `start`."""
        for name, slice_ in self.slices.items():
            slice_.address = f"{name}:1"
        for number, redirector in enumerate(self.redirectors):
            redirector.address = f"redirector-{number}:1"

    async def stop(self) -> None:
        for slice_ in self.slices.values():
            slice_.answering.set()
            await slice_.stop()
        for redirector in self.redirectors:
            await redirector.stop()

    def move(self, changes: Mapping[int, str], *, tell: bool = True) -> None:
        """Slices know the new map at once; redirectors tell it if `tell`, else at the next `announce`."""
        self.map = self.map.moved(changes)
        self.seen = dict.fromkeys(self.slices, self.map)
        if tell:
            self.announce()

    def announce(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def response(self, sent: PartitionMap | None) -> wire.WatchMapResponse:
        response = wire.WatchMapResponse(map_version=self.map.version)
        for name in self.map.slices:
            slice_ = self.slices[name]
            response.slices.add(slice=name, address=slice_.address, epoch=1, admin_address=slice_.admin_address)
        if sent is None:
            response.partitions = self.map.partitions
            response.owners.extend(self.map.owners)
            return response
        for partition, owner in enumerate(self.map.owners):
            if self.map.slices[owner] != sent.slices[sent.owners[partition]]:
                response.moved.append(partition)
                response.owners.append(owner)
        return response

    def owner_of(self, key: str) -> FakeSlice:
        return self.slices[self.map.owner_of(key.encode())]

    def queue_with_home(self, name: str, prefix: str = "queue") -> str:
        """A queue name whose home is this slice."""
        return next(q for q in (f"{prefix}-{i}" for i in range(10_000)) if self.owner_of(f"@{q}").name == name)

    def key_of(self, name: str, prefix: str = "key") -> str:
        """A key that this slice owns."""
        return next(k for k in (f"{prefix}-{i}" for i in range(10_000)) if self.owner_of(k).name == name)
