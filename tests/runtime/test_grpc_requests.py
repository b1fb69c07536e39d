"""Requests that are no messages get Malformed from every kind of call, and the log gets one line a second at most."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from shoal_contract.errors import Malformed, NoSuchQueue
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import redirector_pb2, slice_pb2
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceServicer, add_RedirectorServiceServicer_to_server
from shoal_runtime import grpc_server
from shoal_runtime.aborting import abort

NONSENSE = b"\xff\xff\xff"


class Redirector(RedirectorServiceServicer):
    async def Locate(self, request: redirector_pb2.LocateRequest, context: Any) -> redirector_pb2.LocateResponse:  # noqa: N802
        if not request.keys:
            await abort(context, NoSuchQueue("typed errors pass"))
        return redirector_pb2.LocateResponse(map_version=len(request.keys))

    async def WatchMap(  # noqa: N802
        self, request: redirector_pb2.WatchMapRequest, context: Any
    ) -> AsyncIterator[redirector_pb2.WatchMapResponse]:
        for version in (1, 2):
            yield redirector_pb2.WatchMapResponse(map_version=version)


async def session(requests: Any, context: Any) -> None:
    """Reads as a slice does, and answers with the number of each request."""
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(slice_pb2.SessionResponse(answers=[slice_pb2.Answer(sequence=request.sequence)]))


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = grpc_server.new_server(calls_max=10)
    add_RedirectorServiceServicer_to_server(Redirector(), server)
    handler = grpc.stream_stream_rpc_method_handler(
        session, slice_pb2.SessionRequest.FromString, slice_pb2.SessionResponse.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("shoal.v1.SliceService", {"Session": handler}),)
    )
    address = grpc_server.listen(server, "127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel
    await server.stop(0)


async def refusal(call: Any) -> Malformed:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    error = from_rpc_error(caught.value)
    assert isinstance(error, Malformed)
    return error


async def test_a_unary_call_refuses_what_is_no_message_and_answers_what_is(channel: grpc.aio.Channel) -> None:
    locate: Any = channel.unary_unary("/shoal.v1.RedirectorService/Locate")
    error = await refusal(locate(NONSENSE))
    assert "a request of 3 bytes is no message of this call" in error.message
    assert error.subject == "/shoal.v1.RedirectorService/Locate"
    good = redirector_pb2.LocateRequest(keys=[b"a", b"b"])
    answer = await locate(good.SerializeToString())
    assert redirector_pb2.LocateResponse.FromString(answer).map_version == 2
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await locate(b"")
    assert isinstance(from_rpc_error(caught.value), NoSuchQueue)


async def test_a_call_that_answers_with_a_stream(channel: grpc.aio.Channel) -> None:
    watch: Any = channel.unary_stream("/shoal.v1.RedirectorService/WatchMap")
    await refusal(watch(NONSENSE).read())
    found = [redirector_pb2.WatchMapResponse.FromString(response).map_version async for response in watch(b"")]
    assert found == [1, 2]


async def test_a_stream_of_requests_in_its_middle(channel: grpc.aio.Channel) -> None:
    call: Any = channel.stream_stream("/shoal.v1.SliceService/Session")()
    await call.write(slice_pb2.SessionRequest(sequence=7).SerializeToString())
    assert slice_pb2.SessionResponse.FromString(await call.read()).answers[0].sequence == 7
    await call.write(NONSENSE)
    await refusal(call.read())


async def test_a_method_that_is_not_there_is_unimplemented(channel: grpc.aio.Channel) -> None:
    for number in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            nothing: Any = channel.unary_unary(f"/shoal.v1.SliceService/Nothing{number}")
            await nothing(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_the_log_is_not_filled(channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture) -> None:
    locate: Any = channel.unary_unary("/shoal.v1.RedirectorService/Locate")
    with caplog.at_level(logging.DEBUG):
        for _ in range(100):
            await refusal(locate(NONSENSE))
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) <= 10
    assert "a request to /shoal.v1.RedirectorService/Locate from ipv4:127.0.0.1" in lines[0].getMessage()
    assert not [record for record in lines if record.exc_info]


@pytest.mark.parametrize("address", ["[::1]:0", "[::]:0", "0.0.0.0:0"])
async def test_servers_listen_on_ipv6_too(address: str) -> None:
    server = grpc_server.new_server(calls_max=10)
    add_RedirectorServiceServicer_to_server(Redirector(), server)
    listening = grpc_server.listen(server, address)
    host, _, port = listening.rpartition(":")
    assert host == address.rpartition(":")[0]
    await server.start()
    for at in {"[::]": ("[::1]", "127.0.0.1"), "0.0.0.0": ("127.0.0.1",)}.get(host, (host,)):
        async with grpc.aio.insecure_channel(f"{at}:{port}") as channel:
            locate: Any = channel.unary_unary("/shoal.v1.RedirectorService/Locate")
            await locate(b"\n\x01a")
    await server.stop(0)
