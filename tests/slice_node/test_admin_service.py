"""Figures, lists and purge of a real broker over real gRPC: what comes, and what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from shoal_contract.errors import InvalidName, Malformed, NoSuchQueue, ShoalError, TooLarge
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.options import QueueOptions
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire import slice_pb2
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.storage.mapped_memory import resident_bytes

from .brokers import connected, running

if TYPE_CHECKING:
    from shoal_contract.wire.admin_pb2_grpc import AdminServiceAsyncStub
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with running(tmp_path, epoch=3) as broker, connected(broker, tmp_path) as channel:
        yield channel


async def refused(call: Awaitable[Any]) -> ShoalError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_what_breaks_a_limit_is_refused_by_its_name(channel: grpc.aio.Channel) -> None:
    stub: AdminServiceAsyncStub = AdminServiceStub(channel)
    for call in (stub.ListQueues(wire.ListQueuesRequest(limit=1001)), stub.ListKeys(wire.ListKeysRequest(limit=1001))):
        error = await refused(call)
        assert isinstance(error, TooLarge) and (error.subject, error.limit, error.value) == ("limit", 1000, 1001)
    error = await refused(stub.ListKeys(wire.ListKeysRequest(prefix=b"x" * 257)))
    assert isinstance(error, InvalidName) and error.subject == "prefix"
    error = await refused(stub.ListQueues(wire.ListQueuesRequest(after=b"x" * 257)))
    assert isinstance(error, InvalidName) and error.subject == "after"
    assert isinstance(await refused(stub.ListMembers(wire.ListMembersRequest(key=b"k", after=b"x"))), Malformed)
    assert isinstance(await refused(stub.ListMembers(wire.ListMembersRequest())), InvalidName)
    assert isinstance(await refused(stub.ListBindings(wire.ListBindingsRequest(queue=b"q"))), NoSuchQueue)


async def test_many_lists_at_once_are_all_answered(channel: grpc.aio.Channel) -> None:
    admin: AdminServiceAsyncStub = AdminServiceStub(channel)
    slice_stub: SliceServiceAsyncStub = SliceServiceStub(channel)
    await slice_stub.Declare(slice_pb2.DeclareRequest(queue=b"q"))
    await slice_stub.Bind(slice_pb2.BindRequest(queue=b"q", keys=[b"k%03d" % number for number in range(300)]))
    pages = await asyncio.gather(*(admin.ListKeys(wire.ListKeysRequest(prefix=b"k")) for _ in range(40)))
    assert {(len(page.keys), page.next) for page in pages} == {(100, b"k099")}
    assert set(pages[0].queues) == {1}


async def test_figures_say_who_and_what_and_a_unary_purge_drops_all(channel: grpc.aio.Channel) -> None:
    admin: AdminServiceAsyncStub = AdminServiceStub(channel)
    slice_stub: SliceServiceAsyncStub = SliceServiceStub(channel)
    await slice_stub.Declare(slice_pb2.DeclareRequest(queue=b"q"))
    await slice_stub.Bind(slice_pb2.BindRequest(queue=b"q", keys=[b"k"]))
    await slice_stub.Publish(slice_pb2.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"12", b"3"])))
    assert (await slice_stub.Purge(slice_pb2.PurgeRequest(queue=b"q"))).messages == 2
    assert (await slice_stub.Purge(slice_pb2.PurgeRequest(queue=b"q"))).messages == 0
    assert isinstance(await refused(slice_stub.Purge(slice_pb2.PurgeRequest(queue=b"nobody"))), NoSuchQueue)
    found = await admin.Figures(wire.FiguresRequest())
    assert (found.slice, found.node, found.epoch, found.partitions) == ("s01", "n01", 3, PARTITIONS_DEFAULT)
    assert (found.queues, found.keys, found.bindings, found.sessions) == (1, 1, 1, 0)
    assert (found.counters.publishes, found.counters.purges, found.counters.refusals) == (2, 2, 1)
    assert found.journal.applied_lsn == found.checkpoint.lag_records <= found.journal.lsn  # One may be under way.
    assert found.journal.segments == 1 and 0 < found.journal.bytes < found.disk_bytes


async def test_figures_tell_what_came_back_and_what_waits_for_its_time(channel: grpc.aio.Channel) -> None:
    admin: AdminServiceAsyncStub = AdminServiceStub(channel)
    stub: SliceServiceAsyncStub = SliceServiceStub(channel)
    await stub.Declare(slice_pb2.DeclareRequest(queue=b"q", options=QueueOptions(max_deliveries=1).to_wire()))
    await stub.Bind(slice_pb2.BindRequest(queue=b"q", keys=[b"k"]))
    await stub.Publish(slice_pb2.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x", b"y", b"z"])))
    later = int(time.time() * 1000) + 3_600_000
    await stub.Publish(slice_pb2.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"1", b"23"]), not_before_ms=later))
    await stub.Pull(slice_pb2.PullRequest(pull=slice_pb2.Pull(queue=b"q", lease_ms=600_000)))
    back = slice_pb2.Ack(key=b"k", low=1, to=3, queues=[b"q"])
    await stub.Nack(slice_pb2.NackRequest(nacks=slice_pb2.Nacks(messages=[back])))
    async with asyncio.timeout(30):
        while (found := await admin.Figures(wire.FiguresRequest())).counters.dead_nacked != 2:  # noqa: ASYNC110 - not signalled
            await asyncio.sleep(0.01)
    await stub.Declare(slice_pb2.DeclareRequest(queue=b"r"))
    farewell = slice_pb2.FarewellRequest(queue=b"r", key=b"k", chunk=Chunk(bodies=[b"bye"]), after_s=3600)
    await stub.Farewell(farewell)
    async with asyncio.timeout(30):
        while not (found := await admin.Figures(wire.FiguresRequest())).farewells:  # noqa: ASYNC110 - not signalled
            await asyncio.sleep(0.01)
    assert (found.farewells, found.farewell_bytes) == (1, len(b"k") + farewell.chunk.ByteSize())
    assert (found.counters.farewells_said, found.counters.farewells_refused) == (0, 0)
    farewell.after_s = 0
    await stub.Farewell(farewell)
    async with asyncio.timeout(30):
        while not (found := await admin.Figures(wire.FiguresRequest())).counters.farewells_said:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (found.counters.farewells_said, found.farewells, found.farewell_bytes) == (1, 0, 0)
    counters = found.counters
    assert (counters.nacks, counters.ack_timeouts, counters.acks) == (2, 0, 0)
    assert (counters.dead_nacked, counters.dead_timed_out, counters.dead_left) == (2, 0, 0)
    assert (found.delayed_publishes, found.delayed_bytes, found.letters_waiting) == (1, 7, 0)


def test_the_memory_of_a_process_that_is_gone_is_nothing() -> None:
    assert resident_bytes(2**22 + 1) == 0
