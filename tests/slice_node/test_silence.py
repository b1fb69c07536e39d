"""A queue with backlog, consumed by a session with room, is served: whatever became of the session's other queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker
from tests.folders import NewFolder

from .brokers import running, served
from .core_driver import bind, declare
from .raw_session import NARROW, RawSession, until_left

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

pytestmark = pytest.mark.asyncio(loop_scope="module")
WINDOW_BYTES = 1 << 20
BLOCKING = Chunk(bodies=[bytes(300 << 10)])
"""More than a transport takes of a client that does not read, and less than the session's window."""
FILLING = Chunk(bodies=[bytes(900 << 10), bytes(900 << 10)])
"""It fills the window alone, and goes in because the window is open when it comes."""
WAIT_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(module_folder: NewFolder) -> AsyncIterator[Broker]:
    async with running(module_folder("node")) as broker:
        yield broker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(broker: Broker, module_folder: NewFolder) -> AsyncIterator[SliceServiceAsyncStub]:
    async with (
        served(broker, module_folder("served")) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as channel,
    ):
        yield SliceServiceStub(channel)


async def publish(stub: SliceServiceAsyncStub, key: bytes, chunk: Chunk) -> None:
    await stub.Publish(wire.PublishRequest(key=key, chunk=chunk))


async def full_session(stub: SliceServiceAsyncStub, name: str) -> RawSession:
    """A session that reads nothing: its window is full of queue NAME-a, handle 1, and so NAME-b, handle 2, lags."""
    session = await RawSession.open(stub, WINDOW_BYTES)
    await session.change(declare(f"{name}-a", f"{name}-b", f"{name}-c"))
    await session.change(bind(f"{name}-a", f"{name}-ka"), bind(f"{name}-b", f"{name}-kb"))
    await session.attach([f"{name}-a".encode(), f"{name}-b".encode()], window_bytes=1 << 25)
    for chunk in (BLOCKING, FILLING):
        await publish(stub, f"{name}-ka".encode(), chunk)
    for _ in range(2):
        await publish(stub, f"{name}-kb".encode(), Chunk(bodies=[b"small"]))
    return session


async def detach(stub: SliceServiceAsyncStub, session: RawSession, name: str) -> None:
    await session.write(wire.SessionRequest(detach=wire.Detach(handles=[1])))
    await until_left(stub, f"{name}-a".encode())


async def drop(stub: SliceServiceAsyncStub, session: RawSession, name: str) -> None:
    await stub.Drop(wire.DropRequest(queue=f"{name}-a".encode()))


async def unbind(stub: SliceServiceAsyncStub, session: RawSession, name: str) -> None:
    keys = [f"{name}-ka".encode()]
    await stub.Unbind(wire.UnbindRequest(queue=f"{name}-a".encode(), keys=keys, discard=True))


async def purge(stub: SliceServiceAsyncStub, session: RawSession, name: str) -> None:
    await stub.Purge(wire.PurgeRequest(queue=f"{name}-a".encode()))


async def reuse(stub: SliceServiceAsyncStub, session: RawSession, name: str) -> None:
    attach = wire.Attach(queues=[f"{name}-c".encode()], handles=[1])
    await session.write(wire.SessionRequest(attach=attach))
    await until_left(stub, f"{name}-a".encode())


Event = Callable[["SliceServiceAsyncStub", RawSession, str], Awaitable[None]]


@pytest.mark.parametrize("event", [detach, drop, unbind, purge, reuse])
async def test_what_frees_a_full_session_wakes_its_other_queues(
    broker: Broker, stub: SliceServiceAsyncStub, event: Event
) -> None:
    """A queue fell silent for good when the queue that had filled its session was detached or dropped."""
    name = event.__name__
    silent = broker.watchman.silent
    session = await full_session(stub, name)
    await event(stub, session, name)
    await session.read_until(lambda: session.offsets(2) == [1, 2], WAIT_S)
    await publish(stub, f"{name}-kb".encode(), Chunk(bodies=[b"later"]))
    await session.read_until(lambda: session.offsets(2) == [1, 2, 3], WAIT_S)
    session.call.cancel()
    assert broker.watchman.silent == silent, "it was served only because the watchman looks every second"
