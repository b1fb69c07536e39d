"""What clients are sent: each response fits a gRPC message, every answer that is owed comes, errors are short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from shoal_contract.errors import DeadlineExceeded, InvalidName, Malformed, NoSuchQueue, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import FRAME_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime import aborting
from shoal_slice_node.adapters import unary
from tests.folders import NewFolder

from .brokers import running, served
from .core_driver import bind, declare, publish
from .raw_session import NARROW, RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 60
ERROR_BYTES_MAX = 4_000
NO_MESSAGE = b"\x0a\xff\xff"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def channel(module_folder: NewFolder) -> AsyncIterator[grpc.aio.Channel]:
    folder = module_folder("node")
    async with (
        running(folder) as broker,
        served(broker, folder) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as channel,
    ):
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> SliceServiceAsyncStub:
    return SliceServiceStub(channel)


def raw_unary(channel: grpc.aio.Channel, method: str) -> Any:
    """Takes and answers bytes."""
    return channel.unary_unary(method)


def raw_session(channel: grpc.aio.Channel) -> Any:
    return channel.stream_stream("/shoal.v1.SliceService/Session")()


async def test_deliveries_of_long_keys_fit_one_message_each(stub: SliceServiceAsyncStub) -> None:
    """The key's name was not counted: a client that paused had its stream killed, and again after each reconnect."""
    keys = [f"{number:06d}".ljust(250, "k") for number in range(22_000)]
    session = await RawSession.open(stub)
    writer = await RawSession.open(stub)
    await writer.change(declare("long"))
    for first in range(0, len(keys), 1_000):
        await writer.change(bind("long", *keys[first : first + 1_000]))
    await session.attach([b"long"], window_messages=100_000)
    await writer.change(publish(keys[0], bytes(300 << 10)))  # The transport takes no more: the rest waits for a reader.
    for first in range(0, len(keys), 1_000):
        chunk = Chunk(bodies=[b"x"]).SerializeToString()
        some = [key.encode() for key in keys[first : first + 1_000]]
        await writer.change(wire.Step(publishes=wire.Publishes(keys=some, chunks=[chunk] * len(some))))
    seen: set[bytes] = set()
    async with asyncio.timeout(WAIT_S):
        while len(seen) < len(keys):
            response = await session.call.read()
            assert isinstance(response, wire.SessionResponse)
            assert response.ByteSize() <= FRAME_BYTES_MAX
            seen.update(delivery.key for delivery in response.deliveries)
    session.call.cancel()
    writer.call.cancel()


async def test_a_client_that_sends_no_more_gets_every_answer_it_is_owed(stub: SliceServiceAsyncStub) -> None:
    """A half-closed stream ended at once: answers to changes that were taken were lost."""
    call = stub.Session()
    await call.write(wire.SessionRequest(open=wire.Open(producer=b"one-producer-id!")))
    for number in range(1, 51):
        change = wire.Change(steps=[declare(f"half-{number}")]).SerializeToString()
        await call.write(wire.SessionRequest(sequence=number, change=change))
    describe = wire.Describe(queues=[b"half-50"])
    await call.write(wire.SessionRequest(sequence=51, describe=describe))
    await call.done_writing()
    answered: list[int] = []
    async with asyncio.timeout(WAIT_S):
        async for response in call:
            answered += [answer.sequence for answer in response.answers]
    assert answered == list(range(1, 52))


async def test_a_name_of_megabytes_is_refused_in_a_few_words(stub: SliceServiceAsyncStub) -> None:
    """A pull from a name of 3.5 MB built an error of 28 MB, and the session ended with it."""
    session = await RawSession.open(stub)
    pull = wire.Pull(queue=b"\0" * 2_200_000)
    sequence = await session.write(wire.SessionRequest(pull=pull))
    await session.read_until(lambda: sequence in session.answers)
    error = session.answers[sequence].error
    assert error.ByteSize() < ERROR_BYTES_MAX and "2200000 bytes" in error.message
    with pytest.raises(NoSuchQueue) as missing:
        await session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"\0" * 255)))
    assert len(missing.value.message) < ERROR_BYTES_MAX
    session.call.cancel()


async def test_bytes_that_are_no_request_are_malformed_and_fill_no_log(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a call ended as UNKNOWN, and each left a traceback in the log."""
    verbs = ("Declare", "Bind", "Unbind", "Publish", "Pull", "Ack", "Drop", "Purge", "Describe")
    methods = [f"/shoal.v1.SliceService/{verb}" for verb in verbs]
    methods += [f"/shoal.v1.AdminService/{verb}" for verb in ("ListQueues", "ListKeys", "ListMembers")]
    methods += ["/shoal.v1.BulkService/ImportStatus"]
    with caplog.at_level(logging.INFO):
        for method in methods:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await raw_unary(channel, method)(NO_MESSAGE)
            assert isinstance(from_rpc_error(refused.value), Malformed), method
        stream = raw_session(channel)
        await stream.write(NO_MESSAGE)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert isinstance(from_rpc_error(ended.value), Malformed)
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_a_frame_of_a_session_that_cannot_be_read_says_so(channel: grpc.aio.Channel) -> None:
    opened = wire.SessionRequest(open=wire.Open(producer=b"one-producer-id!"))
    stream = raw_session(channel)
    await stream.write(opened.SerializeToString())
    await stream.write(NO_MESSAGE)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await stream.read()
    assert isinstance(from_rpc_error(ended.value), Malformed)


async def large_queue(stub: SliceServiceAsyncStub) -> wire.Pull:
    """A look at more than the transport takes for a client that does not read."""
    await stub.Declare(wire.DeclareRequest(queue=b"large"))
    await stub.Bind(wire.BindRequest(queue=b"large", keys=[b"large"]))
    await stub.Publish(wire.PublishRequest(key=b"large", chunk=Chunk(bodies=[bytes(1 << 20)])))
    return wire.Pull(queue=b"large", peek=True)


async def error_at_end(call: Any) -> ShoalError:
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        async with asyncio.timeout(WAIT_S):
            while True:
                await call.read()
    return from_rpc_error(ended.value)


async def test_a_session_that_ends_while_its_first_response_is_written_says_why(
    channel: grpc.aio.Channel, stub: SliceServiceAsyncStub
) -> None:
    """gRPC refused to send headers twice: the client heard nothing for ever, and the log had a traceback."""
    peek = wire.SessionRequest(sequence=1, pull=await large_queue(stub))
    stream = raw_session(channel)
    opened = wire.SessionRequest(open=wire.Open(producer=b"one-producer-id!"))
    for data in (opened.SerializeToString(), peek.SerializeToString(), NO_MESSAGE):
        await stream.write(data)
    assert isinstance(await error_at_end(stream), Malformed)


async def test_a_unary_call_whose_answer_is_not_read_says_so(
    channel: grpc.aio.Channel, stub: SliceServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unary, "UNARY_WRITE_S", 0.2)
    monkeypatch.setattr(unary, "UNARY_ABORT_S", WAIT_S)
    timed_out = asyncio.Event()

    async def abort(*given: Any) -> None:
        timed_out.set()
        await aborting.abort(*given)

    monkeypatch.setattr(unary, "abort", abort)
    peek = wire.PullRequest(pull=await large_queue(stub))
    call: Any = channel.stream_stream("/shoal.v1.SliceService/Pull")()
    await call.write(peek.SerializeToString())
    async with asyncio.timeout(WAIT_S):
        await timed_out.wait()
    assert isinstance(await error_at_end(call), DeadlineExceeded)


async def test_a_name_that_is_too_long_is_said_for_a_unary_call_too(stub: SliceServiceAsyncStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"\xff" * 2_200_000)))
    assert isinstance(from_rpc_error(refused.value), InvalidName)
