"""Imports to queues that are consumed, while memory of attached queues is full: asked of a slice over gRPC."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal_contract.errors import ResourceExhausted, from_wire
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker

from .brokers import connected, running
from .bulk_client import RUN, chunk, import_all, imports
from .core_driver import bind, declare
from .raw_session import RawSession

WAIT_S = 60
ATTACHED = [chunk(number, imports({b"x": [b"k%d" % number]})) for number in (1, 2, 3)]
"""A run that binds the queue which is attached."""


def is_bound(broker: Broker, key: bytes) -> bool:
    """The key is made by its first bind."""
    (full_name,) = broker.state.owned_names([key])
    return broker.state.tables.key.get(full_name) is not None


async def test_an_import_to_an_attached_queue_is_refused_without_room_and_goes_on_later(tmp_path: Path) -> None:
    """Imports to attached queues asked for no room: 563 MiB of 320. Chunks that were applied are answered as before."""
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(WAIT_S):
        session, stub = await RawSession.open(SliceServiceStub(channel)), BulkServiceStub(channel)
        await session.change(declare("x"), bind("x", "old"))
        await session.attach([b"x"])
        first = await import_all(stub, ATTACHED[:1])
        assert first[0].bindings_made == 1
        share = broker.dispatcher.shares.attached
        share.limit_bytes = share.used_bytes
        again, refused = await import_all(stub, ATTACHED)
        assert again == first[0], "the chunk was applied: whatever room there is, it gets its answer"
        error = from_wire(refused.error)
        assert isinstance(error, ResourceExhausted) and "go on with this chunk later" in error.message
        assert (refused.chunk, error.subject) == (2, "x")
        assert (error.limit, error.value) == (share.limit_bytes, share.used_bytes)
        status = await stub.ImportStatus(wire.ImportStatusRequest(run=RUN))
        assert status.chunk == 1 and not is_bound(broker, b"k2")
        share.limit_bytes += 1 << 20
        later = await import_all(stub, ATTACHED[1:])
        assert [(answer.chunk, answer.bindings_made) for answer in later] == [(2, 1), (3, 1)]
        assert is_bound(broker, b"k2")


async def test_an_import_to_queues_that_nothing_consumes_needs_no_room(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(WAIT_S):
        session = await RawSession.open(SliceServiceStub(channel))
        await session.change(declare("x", "y"))
        await session.attach([b"x"])
        share = broker.dispatcher.shares.attached
        share.limit_bytes = share.used_bytes
        (answer,) = await import_all(BulkServiceStub(channel), [chunk(1, imports({b"y": [b"k"], b"new": [b"k"]}))])
        assert (answer.queues_made, answer.bindings_made) == (1, 2)
