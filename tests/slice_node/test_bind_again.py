"""A queue that is bound again to a key is given all from that offset on, and what it still had to get before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from tests.folders import NewFolder

from .brokers import connected, running
from .core_driver import bind, declare, publish, unbind
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(module_folder: NewFolder) -> AsyncIterator[SliceServiceAsyncStub]:
    folder = module_folder("node")
    async with running(folder) as broker, connected(broker, folder) as channel:
        yield SliceServiceStub(channel)


async def bound_twice_before(session: RawSession, queue: str, key: str) -> None:
    """Offset 1 was published while it was bound, 2 and 3 while it was not, 4 while it was again; another queue keeps
    them all."""
    await session.change(declare(queue, f"{queue}-keeper"), bind(f"{queue}-keeper", key), bind(queue, key))
    await session.change(publish(key, b"1"), unbind(queue, key), publish(key, b"2"), publish(key, b"3"))
    await session.change(bind(queue, key), publish(key, b"4"), unbind(queue, key))


async def test_bound_below_an_earlier_time_away_it_sees_that_time(stub: SliceServiceAsyncStub) -> None:
    """The earlier time away stayed a done range, so that messages from the offset on, which bind had answered, never
    came."""
    session = await RawSession.open(stub)
    await bound_twice_before(session, "idle", "k1")
    outcome = await session.change(bind("idle", "k1", start=wire.START_OFFSET, value=3))
    assert list(outcome.steps[0].offsets) == [3]
    await session.attach([b"idle"])
    await session.read_until(lambda: session.offsets(1) == [1, 3, 4])
    session.call.cancel()


async def test_it_is_the_same_for_a_queue_that_is_consumed_meanwhile(stub: SliceServiceAsyncStub) -> None:
    """What is out when it is bound again is not given twice; the time away is given then."""
    session = await RawSession.open(stub)
    await session.change(declare("live"))
    await session.attach([b"live"])
    await bound_twice_before(session, "live", "k2")
    await session.read_until(lambda: session.offsets(1) == [1, 4])
    await session.change(bind("live", "k2", start=wire.START_OFFSET, value=3))
    await session.read_until(lambda: session.offsets(1) == [1, 4, 3])
    await session.ack(wire.Ack(key=b"k2", to=5, handles=[1]))
    described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"live"])))
    assert described.description.queues[0].messages == 0
    session.call.cancel()


async def test_bound_again_from_the_earliest_it_sees_what_it_had_acked(stub: SliceServiceAsyncStub) -> None:
    session = await RawSession.open(stub)
    await bound_twice_before(session, "again", "k3")
    await session.attach([b"again"])
    await session.read_until(lambda: session.offsets(1) == [1, 4])
    await session.ack(wire.Ack(key=b"k3", low=4, to=5, handles=[1]))
    await session.change(bind("again", "k3", start=wire.START_EARLIEST))
    await session.read_until(lambda: sorted(session.offsets(1)[2:]) == [2, 3, 4])
    session.call.cancel()
