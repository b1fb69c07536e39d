"""The administration of a fake slice, as far as the library's tests need it: figures, and names of queues in pages."""

from __future__ import annotations

from typing import Any

from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire.admin_pb2_grpc import AdminServiceServicer
from tests.client.fake_queues import FakeQueues


class FakeAdmin(AdminServiceServicer):
    """`calls`: how often it was asked."""

    def __init__(self, name: str, queues: FakeQueues) -> None:
        self.calls = 0
        self._name = name
        self._queues = queues

    async def Figures(self, request: wire.FiguresRequest, context: Any) -> wire.FiguresResponse:  # noqa: N802
        self.calls += 1
        return wire.FiguresResponse(slice=self._name, queues=len(self._queues.parts))

    async def ListQueues(self, request: wire.ListQueuesRequest, context: Any) -> wire.ListQueuesResponse:  # noqa: N802
        self.calls += 1
        names = sorted(n for n in self._queues.parts if n > request.after and n.startswith(request.prefix))
        page = names[: request.limit]
        return wire.ListQueuesResponse(queues=page, next=page[-1] if len(names) > len(page) else b"")
