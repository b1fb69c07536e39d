"""Answers some questions of the administration for a fake slice: figures, and names of queues in pages."""

from __future__ import annotations

from shoal.testing.fake_queues import FakeQueues
from shoal_contract.wire import admin_pb2 as wire


class FakeAdmin:
    """Answers as AdminService does. `calls`: how often it was asked."""

    def __init__(self, name: str, queues: FakeQueues) -> None:
        self.calls = 0
        self._name = name
        self._queues = queues

    async def Figures(self, request: wire.FiguresRequest, context: object) -> wire.FiguresResponse:  # noqa: N802 - gRPC's name
        """Returns the number of queues; all other figures are 0."""
        self.calls += 1
        return wire.FiguresResponse(slice=self._name, queues=len(self._queues.parts))

    async def ListQueues(self, request: wire.ListQueuesRequest, context: object) -> wire.ListQueuesResponse:  # noqa: N802 - gRPC's name
        """Returns a page of names of queues."""
        self.calls += 1
        names = sorted(n for n in self._queues.parts if n > request.after and n.startswith(request.prefix))
        page = names[: request.limit]
        return wire.ListQueuesResponse(queues=page, next=page[-1] if len(names) > len(page) else b"")
