"""The seam of the client: methods that the contract has, and a client that needs no socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

import shoal
from shoal import map_watch
from shoal.limits import MAP_PATIENCE_S, MAP_PATIENCE_S_MAX
from shoal.testing import FakeCluster
from shoal.transport import methods
from shoal.transport.base import Method
from shoal.transport.grpc import GrpcTransport
from shoal_contract.wire import admin_pb2, redirector_pb2, slice_pb2

from .calls import bound, until
from .fake_cluster import FakeCluster as ServedCluster

METHODS = [found for found in vars(methods).values() if isinstance(found, Method)]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_a_method_is_that_of_the_contract(method: Method) -> None:  # type: ignore[type-arg]  # any of them
    _, service_name, name = method.path.split("/")
    files = [module.DESCRIPTOR for module in (admin_pb2, redirector_pb2, slice_pb2)]
    services = {service.full_name: service for file in files for service in file.services_by_name.values()}
    found = services[service_name].methods_by_name[name]
    assert (found.input_type, found.output_type) == (method.request.DESCRIPTOR, method.response.DESCRIPTOR)


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("shoal.transport.grpc.open_channel", refuse)


async def test_a_client_in_memory_publishes_consumes_and_asks(no_sockets: None) -> None:
    async with FakeCluster(["s01", "s02"]).connect() as broker:
        await broker.declare("queue")
        await broker.bind("queue", ["a", "b", "c"])
        async with broker.consume("queue") as inbox:
            for key in ("a", "b", "c"):
                await broker.publish(key, key.encode())
            got = [await anext(inbox) for _ in range(3)]
            inbox.ack(*got)
            await inbox.flush()
        assert {message.body for message in got} == {b"a", b"b", b"c"}
        assert (await broker.describe("queue")).messages == 0
        assert (await shoal.Admin(broker).queues()).items == ("queue",)


async def test_a_client_in_memory_survives_lost_streams(no_sockets: None) -> None:
    cluster = FakeCluster(["s01"])
    slice_ = cluster.slices["s01"]
    async with cluster.connect() as broker:
        await broker.declare("queue")
        await broker.bind("queue", "key")
        async with broker.consume("queue") as inbox:
            slice_.answering.clear()
            futures = [broker.publish_nowait("key", b"%d" % number) for number in range(20)]
            slice_.cut()
            slice_.answering.set()
            assert [(await future).offset for future in futures] == list(range(1, 21))
            assert [(await anext(inbox)).body for _ in range(20)] == [b"%d" % number for number in range(20)]
    assert slice_.session_count == 0, "leaving ended every stream"


@pytest.fixture
def unanswered_addresses() -> Iterator[tuple[str, str]]:
    """An address that takes connections and says nothing, as a paused process does; and one that refuses them."""
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        closed.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{silent.getsockname()[1]}", f"127.0.0.1:{closed.getsockname()[1]}"


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 50])
async def test_a_stream_that_is_cancelled_while_it_connects_ends_its_write(
    unanswered_addresses: tuple[str, str], turns: int
) -> None:
    for address in unanswered_addresses:
        stream = GrpcTransport().open_session(address)
        writing = asyncio.ensure_future(stream.write(slice_pb2.SessionRequest(open=slice_pb2.Open())))
        for _ in range(turns):
            await asyncio.sleep(0)
        stream.cancel()
        done, _ = await asyncio.wait([writing], timeout=5)
        assert done and writing.cancelling() == 0, "it was not the task that was cancelled"
        assert writing.cancelled() or isinstance(writing.exception(), shoal.Unavailable)
        with pytest.raises((asyncio.CancelledError, shoal.Unavailable)):
            await stream.write(slice_pb2.SessionRequest())
        await stream.close()


async def test_a_write_whose_task_is_cancelled_while_it_connects_ends(unanswered_addresses: tuple[str, str]) -> None:
    stream = GrpcTransport().open_session(unanswered_addresses[0])
    writing = asyncio.ensure_future(stream.write(slice_pb2.SessionRequest(open=slice_pb2.Open())))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing], timeout=5)
    assert writing.cancelled()
    await stream.close()


async def test_sessions_follow_a_slice_that_moves_while_they_connect(
    cluster: ServedCluster, fake_broker: shoal.Broker, unanswered_addresses: tuple[str, str]
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_, (silent, _) = cluster.slices["s01"], unanswered_addresses
    async with asyncio.timeout(30), fake_broker.consume(queue) as inbox:
        sessions = [fake_broker._routing.session("s01"), inbox._slices["s01"].session]
        right = slice_.address
        for address in (silent, right):
            slice_.address = address
            cluster.move({})
            await until(lambda: {one._address for one in sessions} == {slice_.address})
        await fake_broker.publish(key, b"x")
        assert (await inbox.get(timeout=10)).body == b"x"


async def test_a_redirector_that_is_silent_holds_up_no_connect(
    cluster: ServedCluster, unanswered_addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_watch, "MAP_PATIENCE_S", 0.2)
    silent, _ = unanswered_addresses
    async with shoal.connect(silent, cluster.redirectors[0].address, deadline_s=10) as broker:
        assert broker.slices


async def test_a_map_is_asked_for_however_long_the_redirectors_are_away(
    cluster: ServedCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 1,024 attempts a wait was too long to be a number, and nothing followed the map any more."""
    watch = fake_broker._routing.map
    asked = asyncio.Event()
    attempts = 0

    async def refused(redirector: str, backoff: object, patience_s: float | None) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 2_000:
            asked.set()
        raise shoal.Unavailable("away")

    monkeypatch.setattr(watch, "_follow", refused)
    monkeypatch.setattr("shoal.core.backoff.Backoff.pause_s", lambda _: 0.0)
    assert watch._stream is not None
    watch._stream.cancel()
    async with asyncio.timeout(30):
        await asked.wait()
    assert watch._patience_s == MAP_PATIENCE_S_MAX
    monkeypatch.undo()
    async with asyncio.timeout(30):
        cluster.move({})
        await until(lambda: watch._patience_s == MAP_PATIENCE_S)


@pytest.mark.parametrize("addresses", [1, 2])
async def test_only_the_first_answer_of_a_redirector_is_waited_for_so_long(
    addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream with a map is silent for as long as nothing changes. A client with one address has no other to ask."""
    monkeypatch.setattr(map_watch, "MAP_PATIENCE_S", 0.05)
    cluster = FakeCluster()
    cluster.redirectors = cluster.redirectors[:1] * addresses
    async with cluster.connect() as broker:
        watch = broker._routing.map
        asked: list[str] = []
        opened = watch._transport.watch_map

        def counted(redirector: str) -> object:
            asked.append(redirector)
            return opened(redirector)

        monkeypatch.setattr(watch._transport, "watch_map", counted)
        with pytest.raises(TimeoutError):
            await until(lambda: bool(asked), 0.5)
        assert watch._stream is not None
        watch._stream.cancel()
        await until(lambda: len(asked) == 1)
        with pytest.raises(TimeoutError):
            await until(lambda: len(asked) > 1, 0.3)
