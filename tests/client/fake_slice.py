"""The fake slice of `shoal.testing` behind a real gRPC server on loopback, stopped and started on its port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from shoal.testing import fake_slice
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.admin_pb2_grpc import add_AdminServiceServicer_to_server
from shoal_contract.wire.slice_pb2_grpc import SliceServiceServicer, add_SliceServiceServicer_to_server
from shoal_runtime.aborting import abort
from shoal_runtime.grpc_server import listen, new_server
from tests.client.fake_admin import FakeAdmin

Response = TypeVar("Response")


async def answered(call: Awaitable[Response], context: Any) -> Response:
    """A call's answer, or the end of the call with its error."""
    try:
        return await call
    except ShoalError as error:
        await abort(context, error)


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

    async def Publish(  # noqa: N802 - gRPC's name
        self, request: wire.PublishRequest, context: Any
    ) -> wire.PublishResponse:
        return await answered(super().Publish(request, context), context)

    async def Describe(  # noqa: N802 - gRPC's name
        self, request: wire.DescribeRequest, context: Any
    ) -> wire.DescribeResponse:
        return await answered(super().Describe(request, context), context)

    async def Pull(self, request: wire.PullRequest, context: Any) -> wire.PullResponse:  # noqa: N802 - gRPC's name
        return await answered(super().Pull(request, context), context)

    async def Ack(self, request: wire.AckRequest, context: Any) -> wire.AckResponse:  # noqa: N802
        return await answered(super().Ack(request, context), context)

    async def Nack(self, request: wire.NackRequest, context: Any) -> wire.NackResponse:  # noqa: N802
        return await answered(super().Nack(request, context), context)

    async def stop(self) -> None:
        self.cut()
        for server in (self._server, self._admin_server):
            if server is not None:
                await server.stop(grace=0)
