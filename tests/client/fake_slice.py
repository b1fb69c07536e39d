"""The fake slice of `shoal.testing` behind a real gRPC server on loopback, stopped and started on its port."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from shoal.testing import fake_slice
from shoal_contract.wire.admin_pb2_grpc import add_AdminServiceServicer_to_server
from shoal_contract.wire.slice_pb2_grpc import SliceServiceServicer, add_SliceServiceServicer_to_server
from shoal_runtime.grpc_server import listen, new_server
from tests.client.fake_admin import FakeAdmin


class FakeSlice(fake_slice.FakeSlice, SliceServiceServicer):
    def __init__(self, name: str, owner_of: Callable[[bytes], str], version: Callable[[], int]) -> None:
        super().__init__(name, owner_of, version)
        self.address = "127.0.0.1:0"
        self.admin = self._served_admin = FakeAdmin(name, self.state.queues)  # type: ignore[abstract]  # what the tests ask for
        self.admin_apart = FakeAdmin(name, self.state.queues)  # type: ignore[abstract]
        self._admin_server: grpc.aio.Server | None = None
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = new_server(calls_max=1000)
        add_SliceServiceServicer_to_server(self, self._server)
        add_AdminServiceServicer_to_server(self._served_admin, self._server)
        self.address = listen(self._server, self.address)
        await self._server.start()

    async def open_admin_port(self) -> None:
        """Its administration listens on a port of its own from now on, too."""
        self._admin_server = new_server(calls_max=100)
        add_AdminServiceServicer_to_server(self.admin_apart, self._admin_server)
        self.admin_address = listen(self._admin_server, "127.0.0.1:0")
        await self._admin_server.start()

    async def stop(self) -> None:
        self.cut()
        for server in (self._server, self._admin_server):
            if server is not None:
                await server.stop(grace=0)
