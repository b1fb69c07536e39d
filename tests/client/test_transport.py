"""The seam of the client: methods that the contract has, and a client that needs no socket."""

from __future__ import annotations

import socket

import pytest

import shoal
from shoal.testing import FakeCluster
from shoal.transport import methods
from shoal.transport.base import Method
from shoal_contract.wire import admin_pb2, redirector_pb2, slice_pb2

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
