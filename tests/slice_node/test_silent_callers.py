"""Clients that connect or call and then say nothing: they end, and the others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from shoal_contract import grpc_server
from shoal_contract.errors import DeadlineExceeded, ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import HANDSHAKE_MS_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import (
    bulk_service,
    import_stream,
    mapped_memory,
    servers,
    slice_service,
    unary,
    watchman,
    writers,
)
from shoal_slice_node.adapters.broker import BrokerOptions
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import (
    LARGE_ANSWER_BYTES,
    OPEN_FILES_RESERVE,
    OPERATORS_CONNECTIONS_MAX,
    SESSIONS_MAX,
    UNARY_AT_ONCE_MAX,
    UNARY_PER_CONNECTION_MAX,
    UNARY_UNREAD_BYTES_MAX,
)
from shoal_slice_node.adapters.unary import Admission, parse

from .brokers import OPTIONS, connected, running, served
from .raw_session import NARROW, RawSession

WAIT_S = 30


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
    ("files", "connections"), [(100, 50), (2 * OPEN_FILES_RESERVE, OPEN_FILES_RESERVE), (1 << 20, SESSIONS_MAX)]
)
def test_files_are_kept_for_the_node_itself(files: int, connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(servers, "raise_open_files", lambda: files)
    monkeypatch.setattr(servers, "_new_server", taken.append)
    monkeypatch.setattr(grpc_server, "listen", lambda *_: "127.0.0.1:1")
    servers.Servers.listen("127.0.0.1:0", "", "127.0.0.1:0", "")
    assert taken == [connections, min(connections, OPERATORS_CONNECTIONS_MAX)]


async def test_calls_that_send_no_request_give_their_places_up(tmp_path: Path) -> None:
    """Two connections with fifty such calls each kept all others waiting for 10 s."""
    async with running(tmp_path) as broker, served(broker, tmp_path) as address, contextlib.AsyncExitStack() as stack:
        calls: list[Any] = []
        for number in range(3):
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
        assert isinstance(error, DeadlineExceeded) and "other calls wait for its room" in error.message
        for call in calls:
            call.cancel()
        await asyncio.gather(*reads, return_exceptions=True)


async def test_places_go_from_connection_to_connection() -> None:
    admission, order = Admission(), []
    ends = asyncio.Event()

    async def call(peer: str) -> None:
        async with admission.place(peer):
            order.append(peer)
            await ends.wait()

    many = UNARY_PER_CONNECTION_MAX + 2
    tasks = [asyncio.ensure_future(call(peer)) for peer in ["a"] * many + ["b"] * many + ["c"] * 20 + ["d"]]
    await asyncio.sleep(0)
    assert Counter(order) == {"a": UNARY_PER_CONNECTION_MAX, "b": UNARY_PER_CONNECTION_MAX} and admission.crowded
    for task in (*tasks[:3], tasks[many - 1]):
        task.cancel()
    await asyncio.gather(*tasks[:3], return_exceptions=True)
    await asyncio.sleep(0)
    assert order[UNARY_AT_ONCE_MAX:] == ["a", "c", "d"]
    ends.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(order) == len(tasks) - 1 and not admission.waiting and not admission.crowded
    assert not admission._held and not admission._lines and admission._free == UNARY_AT_ONCE_MAX


async def test_one_connection_alone_may_take_its_time_to_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls wait for each other only: a client on a slow line is not hurried by its own."""
    monkeypatch.setattr(unary, "UNARY_READ_CROWDED_S", 0.05)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        calls: list[Any] = [
            channel.stream_stream("/shoal.v1.SliceService/Declare")() for _ in range(UNARY_PER_CONNECTION_MAX + 4)
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
        assert isinstance(error, DeadlineExceeded) and "0.2 s" in error.message


async def test_a_session_that_does_not_read_its_answers_ends_when_others_need_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of answers was never quite full, so it never ended, and all others waited for ever."""
    monkeypatch.setattr(writers, "STALLED_SESSION_MS", 300)
    options = replace(OPTIONS, memory=replace(OPTIONS.memory, answers_bytes=0))  # Room for one.
    async with (
        running(tmp_path, options=options) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as narrow,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        for _ in range(3):
            await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(1 << 20)])))
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


class Held:
    """What a process seems to hold."""

    def __init__(self) -> None:
        self.bytes = 0

    def options(self) -> BrokerOptions:
        return replace(OPTIONS, own_bytes=lambda: self.bytes)


async def ended_for_memory(session: RawSession) -> bool:
    """Whether the slice has ended it for that; it says nothing else meanwhile."""
    try:
        async with asyncio.timeout(0.3):
            await session.read_until(lambda: False)
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as ended:
        error = from_rpc_error(ended)
        assert isinstance(error, ResourceExhausted) and "its budget is" in error.message
    return True


@pytest.mark.parametrize(
    ("times", "silent_ms", "idle_ends", "consumer_ends"),
    [
        (1.1, 2_000, False, False),
        (1.1, 11_000, True, False),
        (1.3, 500, False, False),
        (1.3, 2_000, True, False),
        (1.6, 11_000, True, True),
    ],
)
async def test_above_its_budget_a_node_ends_silent_sessions_and_takes_no_new_ones(
    times: float, silent_ms: int, idle_ends: bool, consumer_ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    async with (
        running(tmp_path, options=held.options()) as broker,
        connected(broker, tmp_path) as channel,
        asyncio.timeout(WAIT_S),
    ):
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        consumer, idle = await RawSession.open(stub), await RawSession.open(stub)
        await consumer.attach([b"q"])
        await idle.attach([])
        held.bytes = int(times * OPTIONS.memory.budget_bytes)
        now_ms = steady_ms()
        monkeypatch.setattr(writers, "steady_ms", lambda: now_ms + silent_ms)
        newcomer = await RawSession.open(stub)
        async with asyncio.timeout(WAIT_S):
            while broker.watch.memory_short is None:  # noqa: ASYNC110 - the node is doing it
                await asyncio.sleep(0.01)
        broker.watch.guard_memory()  # Consumers are looked at once no other is left.
        assert await ended_for_memory(idle) is idle_ends
        assert await ended_for_memory(consumer) is consumer_ends
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await (await RawSession.open(stub)).attach([b"q"])
        assert "its budget is" in str(from_rpc_error(refused.value))
        held.bytes = 0
        broker.watch.guard_memory()
        await (await RawSession.open(stub)).attach([b"q"])
        newcomer.call.cancel()


async def test_memory_that_nobody_can_give_back_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    held.bytes = 1 << 40
    async with (
        running(tmp_path, options=held.options()) as broker,
        connected(broker, tmp_path) as channel,
        asyncio.timeout(WAIT_S),
    ):
        broker.watch.guard_memory()
        assert broker.watch.memory_short is not None
        now_ms = steady_ms()
        for later_ms in (19_000, 21_000, 21_000):
            monkeypatch.setattr(watchman, "steady_ms", lambda later_ms=later_ms: now_ms + later_ms)
            assert broker.watch.memory_short is not None
            broker.watch.guard_memory()
        assert broker.watch.memory_short is None
        await (await RawSession.open(SliceServiceStub(channel))).attach([])


async def test_an_unread_answer_keeps_no_place_unless_very_much_is_unread() -> None:
    admission = Admission()
    large = UNARY_UNREAD_BYTES_MAX // 2
    async with admission.place("a") as leave_first, admission.place("a") as leave_second, admission.place("a") as leave:
        with admission.unread(large, leave_first), admission.unread(large, leave_second):
            assert admission._free == UNARY_AT_ONCE_MAX - 1 and not admission.crowded_by_answers
            with admission.unread(1, leave):
                assert admission._free == UNARY_AT_ONCE_MAX - 1 and admission.crowded_by_answers
            assert not admission.crowded_by_answers
    assert admission._free == UNARY_AT_ONCE_MAX and not admission._held and not admission._unread_bytes


async def test_unary_answers_that_are_not_read_end_when_others_wait(tmp_path: Path) -> None:
    """Each held its place, and room for a largest answer, for 30 s: six of them stopped all pulls."""
    options = replace(OPTIONS, memory=replace(OPTIONS.memory, answers_bytes=0))  # Room for one.
    async with (
        running(tmp_path, options=options) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address, options=NARROW) as narrow,
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(WAIT_S),
    ):
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(1 << 20)])))
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


def test_memory_of_its_own_is_known_and_what_was_freed_is_given_back() -> None:
    assert 1 << 20 < mapped_memory.own_bytes() <= mapped_memory.resident_bytes()
    mapped_memory.give_back()
