"""The fake administration behind a real gRPC server."""

from __future__ import annotations

from shoal.testing import fake_admin
from shoal_contract.wire.admin_pb2_grpc import AdminServiceServicer


class FakeAdmin(fake_admin.FakeAdmin, AdminServiceServicer):
    """What the fake does not have is unimplemented."""
