"""The gRPC server of every process: how many calls one connection may have at a time, and that others have theirs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_runtime import grpc_server
from shoal_runtime.connections import Connections
from shoal_runtime.limits import CALLS_PER_CONNECTION_MAX, CALLS_WAITING_MAX, RECEIVED_BYTES_MAX
from tests.runtime.conftest import WAIT_S, until

HALF = CALLS_PER_CONNECTION_MAX // 2


class Waiting:
    """A server whose calls wait for `release`, and connections to it."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self.address = grpc_server.listen(server, "127.0.0.1:0")
        self.begun = 0
        self.release = asyncio.Event()

    async def wait(self, request: bytes, context: Any) -> bytes:
        self.begun += 1
        await self.release.wait()
        return request

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.begun += 1
        async for request in requests:
            yield request

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Callable[[bytes], Any]]:
        async with grpc.aio.insecure_channel(self.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            await channel.channel_ready()
            call: Any = channel.unary_unary("/test.Test/Wait")
            yield call


@asynccontextmanager
async def waiting(calls_max: int = 10 * CALLS_PER_CONNECTION_MAX) -> AsyncIterator[Waiting]:
    server = grpc_server.new_server(calls_max=calls_max)
    served = Waiting(server)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Wait": grpc.unary_unary_rpc_method_handler(served.wait),
        "Stream": grpc.stream_stream_rpc_method_handler(served.stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    await server.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield served
    finally:
        await server.stop(0)


async def test_calls_beyond_those_of_a_connection_wait_or_are_refused_and_leave_others_alone() -> None:
    async with waiting() as served, served.connection() as many, served.connection() as one:
        calls: list[Any] = [many(b"") for _ in range(CALLS_PER_CONNECTION_MAX + 50)]
        await until(lambda: served.begun >= CALLS_PER_CONNECTION_MAX)
        other = one(b"x")
        await until(lambda: served.begun > CALLS_PER_CONNECTION_MAX)
        assert served.begun == CALLS_PER_CONNECTION_MAX + 1, "only the other connection's"
        served.release.set()
        assert await other == b"x"
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert ends.count(b"") >= CALLS_PER_CONNECTION_MAX
        for end in ends:
            if end != b"":
                assert isinstance(end, grpc.RpcError)
                assert isinstance(from_rpc_error(end), Unavailable | ResourceExhausted)


async def test_half_as_many_calls_are_answered_however_fast_they_follow() -> None:
    """Calls that are answered count until they are freed."""
    async with waiting() as served, served.connection() as call:
        served.release.set()
        for _ in range(20):
            assert await asyncio.gather(*(call(b"x") for _ in range(HALF))) == [b"x"] * HALF


def begin_calls(channels: list[grpc.Channel]) -> list[Any]:
    calls: list[Any] = [channel.unary_unary("/test.Test/Wait") for channel in channels]
    return [call.future(b"x") for call in calls for _ in range(CALLS_PER_CONNECTION_MAX)]


async def test_no_call_is_dropped_because_very_many_come_at_once() -> None:
    """gRPC by itself drops calls at random once 1,000 stand in its line, and all beyond 3,000."""
    async with waiting(calls_max=10_000) as served:
        served.release.set()
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(served.address, options) for _ in range(20)]
        begun: list[Any] = []
        thread = threading.Thread(target=lambda: begun.extend(begin_calls(channels)))
        thread.start()
        thread.join()  # The server's loop does nothing meanwhile.
        errors = await asyncio.to_thread(lambda: {str(call.exception()) for call in begun})
        for channel in channels:
            channel.close()
        assert errors == {"None"} and served.begun == 20 * CALLS_PER_CONNECTION_MAX


async def test_calls_that_one_connection_begins_and_resets_keep_out_no_others() -> None:
    """They count as calls of their connection until a turn of the loop has seen that they ended."""
    script = Path(__file__).with_name("resets.py")
    async with waiting() as served, served.connection() as call:
        served.release.set()
        host, port = served.address.split(":")
        command = [sys.executable, str(script), host, port]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:  # noqa: ASYNC220 - the loop shall stand
            try:
                assert attacker.stdout is not None
                attacker.stdout.readline()  # The server's loop does nothing meanwhile.
                assert await asyncio.gather(*(call(b"x") for _ in range(5))) == [b"x"] * 5
                assert served.begun < CALLS_WAITING_MAX
            finally:
                attacker.kill()


async def test_compressed_messages_are_refused_before_they_grow() -> None:
    """2,500 sessions with 2 KB each made 2 GB of them."""
    came: list[int] = []

    async def one(request: bytes, _: object) -> bytes:
        came.append(len(request))
        return b""

    async def many(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for request in requests:
            came.append(len(request))
            yield b""

    server = grpc_server.new_server(calls_max=10)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Many": grpc.stream_stream_rpc_method_handler(many),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    address = grpc_server.listen(server, "127.0.0.1:0")
    await server.start()
    try:
        for compression in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
            async with grpc.aio.insecure_channel(address, compression=compression) as channel, asyncio.timeout(WAIT_S):
                ask: Any = channel.unary_unary("/test/One")
                begin: Any = channel.stream_stream("/test/Many")
                taken = [await _taken(ask(bytes(1000)))]
                call = begin()
                with contextlib.suppress(grpc.aio.AioRpcError):  # It may be over before.
                    await call.write(bytes(1000))
                taken.append(await _taken(call.read()))
                call.cancel()
                assert taken == [compression is grpc.Compression.NoCompression] * 2
        assert came == [1000, 1000]
    finally:
        await server.stop(0)


async def _taken(answer: Any) -> bool:
    """Whether a call was answered, not refused."""
    try:
        return bool(await answer == b"")
    except grpc.aio.AioRpcError:
        return False


async def test_what_the_kernel_takes_of_a_connection_is_bounded() -> None:
    """They inherit the bound of the socket that took them."""
    async with waiting() as served, served.connection():
        connections = list(Connections().look((int(served.address.rpartition(":")[2]),)))
        assert connections
        for connection in connections:
            with socket.socket(fileno=os.dup(connection.file)) as file:
                assert file.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * RECEIVED_BYTES_MAX
