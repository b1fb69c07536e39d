"""What the gRPC server of every process bounds by itself: headers, its line of calls, connections that do nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from shoal_contract.errors import Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_runtime import grpc_server
from shoal_runtime.connections import Connections
from shoal_runtime.limits import (
    CALL_WAITING_BYTES,
    CALLS_WAITING_MAX,
    CALLS_WAITING_PARTS,
    IDLE_MS_MAX,
    METADATA_BYTES_MAX,
    SETTINGS_MS_MAX,
)
from tests.runtime.conftest import WAIT_S, until
from tests.runtime.resets import PREFACE, SETTINGS, frame

TOKEN = ("authorization", "Bearer " + "t" * 1_000)
TRACING = (("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"), ("tracestate", "vendor=" + "c" * 60))
SHORT_MS = 300


async def answer(request: bytes, _: Any) -> bytes:
    return request


async def stream(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


@asynccontextmanager
async def serving(waiting_max: int = CALLS_WAITING_MAX, *options: tuple[str, int]) -> AsyncIterator[str]:
    """The address of a server that answers each call at once."""
    server = grpc_server.new_server(calls_max=10_000, waiting_max=waiting_max, options=options)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "One": grpc.unary_unary_rpc_method_handler(answer),
        "Many": grpc.stream_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    address = grpc_server.listen(server, "127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield address
    finally:
        await server.stop(0)


def connections(address: str) -> int:
    return len(list(Connections().look((int(address.rpartition(":")[2]),))))


async def test_a_token_and_the_headers_of_tracing_fit_beside_a_call_s_own() -> None:
    async with serving() as address, grpc.aio.insecure_channel(address) as channel:
        one: Any = channel.unary_unary("/test.Test/One")
        assert await one(b"x", timeout=WAIT_S, metadata=(TOKEN, *TRACING)) == b"x"


@pytest.mark.parametrize("metadata", [((TOKEN[0], "t" * 2_000),), (("x", ""),) * 220], ids=["long", "many"])
async def test_more_headers_are_refused_with_the_limit_and_other_calls_go_on(metadata: Any) -> None:
    """A field that HTTP/2's table has comes as one byte, and gRPC keeps 170 for it: calls in its line held 71 KiB."""
    async with serving() as address, grpc.aio.insecure_channel(address) as channel:
        one: Any = channel.unary_unary("/test.Test/One")
        assert await one(b"x", timeout=WAIT_S) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await one(b"x", timeout=WAIT_S, metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"vs. {METADATA_BYTES_MAX})" in str(refused.value.details())
        assert await one(b"x", timeout=WAIT_S) == b"x"


async def test_grpc_s_line_has_no_more_calls_than_it_is_given() -> None:
    """8,000 were in it whatever the memory, and held 12 MiB by the plan of a redirector, 400 MiB in truth."""
    async with serving(50) as address:
        with grpc.insecure_channel(address) as channel:
            begun: list[Any] = []
            one: Any = channel.unary_unary("/test.Test/One")
            thread = threading.Thread(target=lambda: begun.extend(one.future(b"x") for _ in range(120)))
            thread.start()
            thread.join()
            threading.Event().wait(1.0)  # The server's loop does nothing meanwhile, and calls arrive.
            errors = await asyncio.to_thread(lambda: [call.exception() for call in begun])
    answered = errors.count(None)
    assert 50 <= answered <= 60, "and those that the loop had taken"
    assert {type(from_rpc_error(error)) for error in errors if error} == {Unavailable}, "which clients try again"


@pytest.mark.parametrize("memory_mib", [320, 512, 1_024, 4_096])
def test_the_line_goes_by_the_memory(memory_mib: int) -> None:
    calls = grpc_server.calls_waiting_max(memory_mib << 20)
    assert 900 < calls <= CALLS_WAITING_MAX
    assert calls * CALL_WAITING_BYTES <= (memory_mib << 20) // CALLS_WAITING_PARTS


async def test_a_connection_without_calls_ends_and_comes_again_with_the_next_call() -> None:
    assert dict(grpc_server.OPTIONS)["grpc.max_connection_idle_ms"] == IDLE_MS_MAX
    idle = ("grpc.max_connection_idle_ms", SHORT_MS)
    async with serving(CALLS_WAITING_MAX, idle) as address, grpc.aio.insecure_channel(address) as channel:
        one: Any = channel.unary_unary("/test.Test/One")
        for _ in range(2):
            assert await one(b"x") == b"x"
            assert connections(address) == 1
            await until(lambda: not connections(address))


async def test_a_connection_with_an_open_stream_is_not_idle() -> None:
    idle = ("grpc.max_connection_idle_ms", SHORT_MS)
    async with serving(CALLS_WAITING_MAX, idle) as address:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            grpc.aio.insecure_channel(address, options) as streaming,
            grpc.aio.insecure_channel(address, options) as calling,
        ):
            many: Any = streaming.stream_stream("/test.Test/Many")
            call = many()
            await call.write(b"x")
            assert await call.read() == b"x"
            one: Any = calling.unary_unary("/test.Test/One")
            for _ in range(3):
                assert await one(b"x") == b"x"
                await until(lambda: connections(address) == 1)
            await call.write(b"y")
            assert await call.read() == b"y"
            call.cancel()


async def test_a_connection_ends_whose_client_does_not_acknowledge_the_settings() -> None:
    """The bound of headers is one of them, and does not apply before."""
    assert dict(grpc_server.OPTIONS)["grpc.http2.settings_timeout"] == SETTINGS_MS_MAX
    async with serving(CALLS_WAITING_MAX, ("grpc.http2.settings_timeout", SHORT_MS)) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        while await reader.read(1 << 16):
            pass
        writer.close()
