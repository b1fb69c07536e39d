"""The resident memory of a node under what makes it grow: it stays within its budget, and the node serves on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

from .core_driver import bind, declare, publish
from .node_process import NodeProcess
from .raw_session import NARROW, RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUDGET_MIB = 400
MIB = 1 << 20
LARGE = bytes(1_000_000)
Record = Callable[[str, object], None]


class Measured:
    """A node and a channel to it. `peak_bytes`: the most that its process had of its own; pages of the store's file are
    the page cache's, and are not counted."""

    def __init__(self, node: NodeProcess, channel: grpc.aio.Channel) -> None:
        self.node = node
        self.stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        self.peak_bytes = 0

    async def watch(self) -> None:
        status = Path(f"/proc/{self.node.process.pid}/status")
        while True:
            own = status.read_text(encoding="ascii").split("RssAnon:")[1].split()[0]  # noqa: ASYNC240 - no disk
            self.peak_bytes = max(self.peak_bytes, int(own) << 10)
            await asyncio.sleep(0.05)

    async def settled(self) -> None:
        """Returns once a second has brought no more."""
        before = -1
        while before < self.peak_bytes:
            before = self.peak_bytes
            for _ in range(20):
                await asyncio.sleep(0.05)

    async def session(self, window_bytes: int = 64 * MIB) -> RawSession:
        return await RawSession.open(self.stub, window_bytes)


@pytest.fixture
async def measured(tmp_path: Path, record_property: Record) -> AsyncIterator[Measured]:
    node = await NodeProcess.start(tmp_path, "--memory-mib", str(BUDGET_MIB))
    try:
        async with grpc.aio.insecure_channel(node.address) as channel:
            measured = Measured(node, channel)
            watching = asyncio.create_task(measured.watch())
            yield measured
            assert not watching.done(), "the node has ended"
            watching.cancel()
            outcome = await measured.stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
            assert outcome is not None
        peak = f"{measured.peak_bytes // MIB} of {BUDGET_MIB} MiB"
        sys.stdout.write(f"peak: {peak}\n")
        record_property("peak", peak)
        assert measured.peak_bytes < BUDGET_MIB * MIB, peak
    finally:
        await node.kill()


async def test_sessions_that_never_read_stay_within_the_budget(measured: Measured) -> None:
    """Each may have 64 MiB under way, by what it asked for."""
    for number in range(40):
        session = await measured.session()
        await session.change(declare(f"q{number}"), bind(f"q{number}", "busy"))
        await session.attach([b"q%d" % number], 1, 100_000, 64 * MIB)
    for _ in range(60):
        await measured.stub.Publish(wire.PublishRequest(key=b"busy", chunk=Chunk(bodies=[LARGE])))
    await measured.settled()


async def test_sessions_that_never_read_a_key_each_stay_within_the_budget(measured: Measured) -> None:
    """Each was given a chunk of its own, however full the share was."""
    keys = [f"k{number}" for number in range(200)]
    writer = await measured.session()
    await writer.change(*(step for key in keys for step in (declare(f"q-{key}"), bind(f"q-{key}", key))))
    for key in keys:
        await measured.stub.Publish(wire.PublishRequest(key=key.encode(), chunk=Chunk(bodies=[LARGE, LARGE])))
    options = (("grpc.use_local_subchannel_pool", 1), *NARROW)
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(measured.node.address, (*options, ("test", number)))
            )
            for number in range(4)
        ]
        sessions = [await RawSession.open(SliceServiceStub(channels[number % 4])) for number in range(len(keys))]
        attaches = [wire.Attach(queues=[f"q-{key}".encode()], handles=[1]) for key in keys]
        frames = zip(sessions, attaches, strict=True)
        with suppress(grpc.aio.AioRpcError):  # They may be hung up on by then.
            await asyncio.gather(*(session.write(wire.SessionRequest(attach=attach)) for session, attach in frames))
        await measured.settled()


async def test_many_unary_publishes_of_a_megabyte_at_once(measured: Measured) -> None:
    await measured.stub.Declare(wire.DeclareRequest(queue=b"q"))
    await measured.stub.Bind(wire.BindRequest(queue=b"q", keys=[b"busy"]))
    request = wire.PublishRequest(key=b"busy", chunk=Chunk(bodies=[LARGE]))
    channels = [
        grpc.aio.insecure_channel(measured.node.address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(6)
    ]
    calls = [SliceServiceStub(channel).Publish(request) for channel in channels for _ in range(70)]
    taken = refused = 0
    for call in calls:
        try:
            await call
            taken += 1
        except grpc.aio.AioRpcError as error:
            assert isinstance(from_rpc_error(error), ResourceExhausted), error
            refused += 1
    for channel in channels:
        await channel.close()
    assert taken > 100 and taken + refused == len(calls)


async def test_full_windows_of_small_deliveries_stay_within_the_budget(measured: Measured) -> None:
    """A reader that never acks: 2,000 queues at one key, each with a window of 100,000 messages."""
    consumer = await measured.session(1 * MIB)
    for first in range(0, 2000, 500):
        names = [f"q{number:04}" for number in range(first, first + 500)]
        queues = [name.encode() for name in names]
        together = wire.Step(binds=wire.Binds(queues=queues, keys=[b"busy"] * 500))
        await consumer.change(declare(*names), together)
        await consumer.attach(queues, 1 + first, 100_000)

    async def read() -> None:
        while True:
            await consumer.read()
            consumer.deliveries.clear()

    reading = asyncio.create_task(read())
    other = await measured.session()
    for _ in range(40):
        await other.change(*(publish("busy", b"small") for _ in range(50)))
    await measured.settled()
    assert not reading.done()
    reading.cancel()


async def test_a_hundred_thousand_parcels_stay_within_the_budget(measured: Measured) -> None:
    """One session that never reads: a small message of each of 1,000 keys, a hundred times."""
    session, other = await measured.session(), await measured.session()
    keys = [f"k{number:03}" for number in range(999)]
    await session.change(declare("q"))
    await session.change(bind("q", *keys))
    await session.attach([b"q"], 1, 100_000, 64 * MIB)
    for _ in range(100):
        await other.change(*(publish(key, b"x") for key in keys))
    await measured.settled()
