"""Clients that connect or call and then say nothing: they end, and the others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime import grpc_server
from shoal_runtime.limits import CALLS_WAITING_MAX, HANDSHAKE_MS_MAX
from shoal_slice_node.adapters import admission, bulk_service, import_stream, servers, slice_service
from shoal_slice_node.adapters.limits import (
    LARGE_ANSWER_BYTES,
    OPEN_FILES_RESERVE,
    OPERATORS_CONNECTIONS_MAX,
    OPERATORS_WAITING_PARTS,
    SESSIONS_MAX,
    UNARY,
)
from shoal_slice_node.adapters.unary import parse
from shoal_slice_node.storage import mapped_memory

from .brokers import OPTIONS, connected, running, served
from .raw_session import NARROW, RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub
    from shoal_slice_node.adapters.broker import Broker

WAIT_S = 60


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Nothing can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def silent(address: str) -> AsyncIterator[asyncio.StreamReader]:
    """A TCP connection that sends nothing."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Returns when the server has closed the connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass


async def test_maintenance_goes_on_where_no_file_can_be_opened(tmp_path: Path) -> None:
    """Silent connections used all files: the memory map could not be read, and the node stopped."""
    async with running(tmp_path) as broker:
        with no_more_files():
            assert mapped_memory.let_go(str(tmp_path)) == 0
            assert mapped_memory.resident_bytes() == mapped_memory.resident_bytes_peak() == 0
            broker.checkpoints.rest(0)
            broker.checkpoints.rest(3600)
            assert broker.store.disk_free_bytes > 0


async def test_a_connection_that_says_nothing_ends() -> None:
    name = "grpc.server_handshake_timeout_ms"
    assert dict(grpc_server.OPTIONS)[name] == HANDSHAKE_MS_MAX == 5_000
    server = grpc_server.new_server(calls_max=1, options=((name, 500),))  # A server's own option stands.
    address = grpc_server.listen(server, "127.0.0.1:0")
    await server.start()
    try:
        async with silent(address) as reader, asyncio.timeout(4):
            await ended(reader)
    finally:
        await server.stop(0)


async def test_connections_beyond_the_limit_are_closed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "raise_open_files", lambda: 8)
    async with running(tmp_path) as broker, served(broker, tmp_path) as address, contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(silent(address)) for _ in range(5)]
        ends = [asyncio.ensure_future(ended(reader)) for reader in readers]
        try:
            done, _ = await asyncio.wait(ends, timeout=HANDSHAKE_MS_MAX / 2000, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1, "four of eight files are for connections"
        finally:
            for end in ends:
                end.cancel()


@pytest.mark.parametrize(
    ("files", "memory_mib", "connections"),
    [
        (100, 4_096, 50),
        (2 * OPEN_FILES_RESERVE, 4_096, OPEN_FILES_RESERVE),
        (1 << 20, 4_096, SESSIONS_MAX),
        (1 << 20, 320, 6_182),
    ],
)
def test_connections_leave_files_for_the_node_and_fit_its_memory_as_calls_in_line_do(
    files: int, memory_mib: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15,000 idle connections, which no bound of memory kept out, locked all others out of a node of 320 MiB."""
    taken: list[tuple[int, int]] = []
    monkeypatch.setattr(servers, "raise_open_files", lambda: files)

    def new_server(connections_max: int, waiting_max: int, *_: object) -> tuple[None, str]:
        taken.append((connections_max, waiting_max))
        return None, f"127.0.0.1:{len(taken)}"

    monkeypatch.setattr(servers, "_new_server", new_server)
    servers.Servers("127.0.0.1:0", "", "127.0.0.1:0", "", memory_mib << 20)
    line = {320: 1_861, 4_096: CALLS_WAITING_MAX}[memory_mib]
    operators = min(connections, OPERATORS_CONNECTIONS_MAX), line // OPERATORS_WAITING_PARTS
    assert taken == [(connections, line), operators]


async def test_calls_that_send_no_request_give_their_places_up(tmp_path: Path) -> None:
    """A few connections with fifty such calls each kept all others waiting for 10 s."""
    async with running(tmp_path) as broker, served(broker, tmp_path) as address, contextlib.AsyncExitStack() as stack:
        calls: list[Any] = []
        for number in range(UNARY.places_max // UNARY.places_each_max + 1):
            options = (("grpc.use_local_subchannel_pool", 1), ("test", number))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            calls += [channel.stream_stream("/shoal.v1.SliceService/Declare")() for _ in range(50)]
        honest = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        async with asyncio.timeout(9):  # Below UNARY_READ_S.
            await SliceServiceStub(honest).Declare(wire.DeclareRequest(queue=b"q"))
            ended, _ = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        failure = next(iter(ended)).exception()
        assert isinstance(failure, grpc.aio.AioRpcError)
        error = from_rpc_error(failure)
        assert isinstance(error, ResourceExhausted) and "others wait for its place" in error.message
        for call in calls:
            call.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_one_connection_alone_may_take_its_time_to_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls wait for each other only: a client on a slow line is not hurried by its own."""
    monkeypatch.setattr(admission, "UNARY_READ_CROWDED_S", 0.05)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        calls: list[Any] = [
            channel.stream_stream("/shoal.v1.SliceService/Declare")() for _ in range(UNARY.places_each_max + 4)
        ]
        reads = [asyncio.ensure_future(call.read()) for call in calls]
        assert not (await asyncio.wait(reads, timeout=0.2))[0]

        async def answer_of(call: Any, read: asyncio.Future[Any]) -> Any:
            await call.write(wire.DeclareRequest(queue=b"q").SerializeToString())
            await call.done_writing()
            return await read

        async with asyncio.timeout(WAIT_S):  # All at once: which of them have places is not known here.
            answers = await asyncio.gather(*map(answer_of, calls, reads))
        assert grpc.aio.EOF not in answers


@pytest.mark.parametrize(
    ("module", "limit", "method"),
    [
        (slice_service, "SESSION_OPEN_S", "SliceService/Session"),
        (import_stream, "IMPORT_STALL_S", "BulkService/Import"),
        (bulk_service, "SNAPSHOT_STALL_S", "BulkService/Verify"),
    ],
)
async def test_a_stream_that_sends_nothing_ends(
    module: ModuleType, limit: str, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, limit, 0.2)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        call: Any = channel.stream_stream(f"/shoal.v1.{method}")()
        async with asyncio.timeout(WAIT_S / 3):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call.read()
        error = from_rpc_error(failed.value)
        assert isinstance(error, DeadlineExceeded) and "the client sent nothing for 0." in error.message


@contextlib.asynccontextmanager
async def room_for_one_answer(folder: Path) -> AsyncIterator[tuple[Broker, grpc.aio.Channel, SliceServiceAsyncStub]]:
    """A broker with three large messages for a queue, a channel that takes little of what is not read, and a stub."""
    options = replace(OPTIONS, memory=replace(OPTIONS.memory, answers_bytes=0))
    async with (
        running(folder, options=options) as broker,
        served(broker, folder) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as narrow,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        for _ in range(3):
            await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(1 << 20)])))
        yield broker, narrow, stub


async def test_a_session_that_does_not_read_its_answers_ends_when_others_need_the_room(tmp_path: Path) -> None:
    """The share of answers was never quite full, so it never ended, and all others waited for ever."""
    async with room_for_one_answer(tmp_path) as (broker, narrow, stub):
        pull = wire.Pull(queue=b"q", messages_max=10, peek=True)
        greedy = await RawSession.open(SliceServiceStub(narrow))
        await greedy.write(wire.SessionRequest(pull=pull))
        async with asyncio.timeout(WAIT_S):
            while not broker.writers._writing:  # noqa: ASYNC110 - the node is doing it
                await asyncio.sleep(0.01)
        async with asyncio.timeout(WAIT_S / 3):
            assert (await stub.Pull(wire.PullRequest(pull=pull))).deliveries
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await greedy.call.read() is not grpc.aio.EOF:
                pass
        error = from_rpc_error(failed.value)
        assert isinstance(error, ResourceExhausted) and "answers fill their share" in error.message


def test_padding_in_unknown_fields_is_not_kept() -> None:
    padding = b"\xfa\x3f\x80\x80\x40" + bytes(1 << 20)  # Field 1023, of bytes.
    request = wire.DeclareRequest(queue=b"q")
    kept = []
    before = mapped_memory.resident_bytes()
    for _ in range(100):
        kept.append(parse(wire.DeclareRequest, request.SerializeToString() + padding, {}))
    resident_of_padding = mapped_memory.resident_bytes() - before
    assert resident_of_padding < 30 << 20
    assert all(one == request for one in kept)


async def test_unary_answers_that_are_not_read_end_when_others_wait(tmp_path: Path) -> None:
    """Each held its place, and room for a largest answer, for 30 s: six of them stopped all pulls."""
    async with room_for_one_answer(tmp_path) as (broker, narrow, stub), asyncio.timeout(WAIT_S):
        request = wire.PullRequest(pull=wire.Pull(queue=b"q", messages_max=10, peek=True))
        greedy: Any = narrow.stream_stream("/shoal.v1.SliceService/Pull")()
        await greedy.write(request.SerializeToString())
        share = broker.answers.share
        while not (1 << 20) <= share.used_bytes < LARGE_ANSWER_BYTES:  # noqa: ASYNC110 - the node is doing it
            await asyncio.sleep(0.01)
        async with asyncio.timeout(WAIT_S / 3):
            assert (await stub.Pull(request)).deliveries
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await greedy.read() is not grpc.aio.EOF:
                pass
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE, "it was hung up on"


async def test_a_busy_process_may_open_hundreds_of_sessions_at_once(tmp_path: Path) -> None:
    """Its Opens come long after its streams. Refused after 0.1 s, it came back at once, and nobody got in."""
    async with running(tmp_path) as broker, served(broker, tmp_path) as address, contextlib.AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(address, options)) for _ in range(40)]
        calls = [SliceServiceStub(channel).Session() for channel in channels for _ in range(3)]
        ends = [asyncio.ensure_future(call.code()) for call in calls]
        done, _ = await asyncio.wait(ends, timeout=0.5)
        assert not done, "more than have places, and none was turned away"
        async with asyncio.timeout(WAIT_S):
            for number, call in enumerate(calls):
                await call.write(wire.SessionRequest(open=wire.Open(producer=(number + 1).to_bytes(16, "big"))))
            sessions = [RawSession(call) for call in calls]
            await asyncio.gather(*(session.ask(wire.SessionRequest(describe=wire.Describe())) for session in sessions))
        for call in calls:
            call.cancel()
        await asyncio.gather(*ends)
