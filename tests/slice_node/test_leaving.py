"""Clients that leave in the middle of anything: nothing is left of them, not even a line in the log."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from shoal_contract.wire import bulk_pb2, slice_pb2
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.slice_service import SliceService
from tests.folders import NewFolder

from .brokers import running, served
from .bulk_client import chunk, imports
from .core_driver import bind, declare
from .raw_session import NARROW, RawSession, until_left

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub
    from shoal_slice_node.adapters.broker import Broker

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 60
ATTEMPTS_MAX = 1_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker_and_channel(
    module_folder: NewFolder,
) -> AsyncIterator[tuple[Broker, grpc.aio.Channel]]:
    folder = module_folder("node")
    async with (
        running(folder) as broker,
        served(broker, folder) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as channel,
    ):
        yield broker, channel


@pytest.fixture
def broker(broker_and_channel: tuple[Broker, grpc.aio.Channel]) -> Broker:
    return broker_and_channel[0]


@pytest.fixture
def channel(broker_and_channel: tuple[Broker, grpc.aio.Channel]) -> grpc.aio.Channel:
    return broker_and_channel[1]


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> SliceServiceAsyncStub:
    return SliceServiceStub(channel)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing is logged as a warning or worse, nor would be later."""
    with caplog.at_level(logging.INFO):
        yield
        gc.collect()  # asyncio tells of errors that nothing looked at when it lets go of them.
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert not [record.getMessage() for record in records if record.levelno >= logging.WARNING]


async def test_a_session_that_ends_while_it_is_written_to(stub: SliceServiceAsyncStub, quiet: None) -> None:
    queues = [f"left-{number}" for number in range(3)]
    for name in queues:
        session = await RawSession.open(stub, 1 << 24)
        await session.change(declare(name), bind(name, name))
        await session.attach([name.encode()], window_bytes=1 << 24)
        for _ in range(4):
            await stub.Publish(wire.PublishRequest(key=name.encode(), chunk=Chunk(bodies=[bytes(500_000)])))
        session.call.cancel()
    await until_left(stub, *(name.encode() for name in queues))


async def test_an_import_an_export_and_a_verification_that_end(
    channel: grpc.aio.Channel, stub: SliceServiceAsyncStub, quiet: None
) -> None:
    bulk = BulkServiceStub(channel)
    step = imports({b"bulk-%d" % number: [b"one key", b"another"] for number in range(300)})
    requests = [chunk(number, step) for number in range(1, 40)]
    for call in (
        bulk.Import(iter(requests)),
        bulk.Export(bulk_pb2.ExportRequest()),
        bulk.Verify(iter([bulk_pb2.VerifyRequest(chunk=1, change=requests[0].change)] * 20)),
    ):
        async with asyncio.timeout(WAIT_S):
            await call.read()
        call.cancel()
    async with asyncio.timeout(WAIT_S):
        assert [page async for page in bulk.Export(bulk_pb2.ExportRequest())]


async def test_unary_calls_that_are_given_up(
    stub: SliceServiceAsyncStub, quiet: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are given up sooner and later after they were made, until some were given up when the slice had begun."""
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
    begun = 0
    change = SliceService._change

    async def counted(*arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        return await change(*arguments)

    monkeypatch.setattr(SliceService, "_change", counted)
    given_up = 0
    for tries in range(ATTEMPTS_MAX):
        before = begun
        publish = stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(500_000)])))
        pull = stub.Pull(wire.PullRequest(pull=slice_pb2.Pull(queue=b"q", peek=True)))
        for _ in range(tries):  # Turns of the loop, in which the slice works, too.
            await asyncio.sleep(0)
        given_up += publish.cancel() and begun > before
        pull.cancel()
        if given_up >= 5:
            break
    assert given_up >= 5, f"{begun} of {ATTEMPTS_MAX} were begun"
    await stub.Declare(wire.DeclareRequest(queue=b"r"))
