"""Lists the unary methods that the client calls, each with the types of its messages."""

from __future__ import annotations

from typing import Final

from shoal.transport.base import Method
from shoal_contract.wire import admin_pb2 as admin
from shoal_contract.wire import redirector_pb2 as redirector
from shoal_contract.wire import slice_pb2 as slice_

LOCATE: Final = Method("/shoal.v1.RedirectorService/Locate", redirector.LocateRequest, redirector.LocateResponse)

PUBLISH: Final = Method("/shoal.v1.SliceService/Publish", slice_.PublishRequest, slice_.PublishResponse)
DESCRIBE: Final = Method("/shoal.v1.SliceService/Describe", slice_.DescribeRequest, slice_.DescribeResponse)
PULL: Final = Method("/shoal.v1.SliceService/Pull", slice_.PullRequest, slice_.PullResponse)
ACK: Final = Method("/shoal.v1.SliceService/Ack", slice_.AckRequest, slice_.AckResponse)
NACK: Final = Method("/shoal.v1.SliceService/Nack", slice_.NackRequest, slice_.NackResponse)

FIGURES: Final = Method("/shoal.v1.AdminService/Figures", admin.FiguresRequest, admin.FiguresResponse)
LIST_QUEUES: Final = Method("/shoal.v1.AdminService/ListQueues", admin.ListQueuesRequest, admin.ListQueuesResponse)
LIST_KEYS: Final = Method("/shoal.v1.AdminService/ListKeys", admin.ListKeysRequest, admin.ListKeysResponse)
LIST_MEMBERS: Final = Method("/shoal.v1.AdminService/ListMembers", admin.ListMembersRequest, admin.ListMembersResponse)
LIST_BINDINGS: Final = Method(
    "/shoal.v1.AdminService/ListBindings", admin.ListBindingsRequest, admin.ListBindingsResponse
)
