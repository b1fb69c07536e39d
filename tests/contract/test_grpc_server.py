"""The gRPC server of every process: how many calls one connection may have at a time, and that further ones wait."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from shoal_contract import grpc_server
from shoal_contract.limits import CALLS_PER_CONNECTION_MAX
from tests.contract.conftest import WAIT_S, until


async def test_calls_beyond_those_of_a_connection_wait_for_their_turn_in_the_client() -> None:
    begun, release = 0, asyncio.Event()

    async def wait(request: bytes, context: Any) -> bytes:
        nonlocal begun
        begun += 1
        await release.wait()
        return request

    server = grpc_server.new_server(calls_max=10 * CALLS_PER_CONNECTION_MAX)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    address = grpc_server.listen(server, "127.0.0.1:0")
    await server.start()
    options = [("grpc.use_local_subchannel_pool", 1)]
    try:
        async with (
            asyncio.timeout(WAIT_S),
            grpc.aio.insecure_channel(address, options) as many,
            grpc.aio.insecure_channel(address, options) as one,
        ):
            await many.channel_ready()
            wait_on_many: Any = many.unary_unary("/test.Test/Wait")
            calls: list[Any] = [wait_on_many(b"") for _ in range(CALLS_PER_CONNECTION_MAX + 50)]
            await until(lambda: begun >= CALLS_PER_CONNECTION_MAX)
            wait_on_one: Any = one.unary_unary("/test.Test/Wait")
            other: Any = wait_on_one(b"x")
            await until(lambda: begun > CALLS_PER_CONNECTION_MAX)
            assert begun == CALLS_PER_CONNECTION_MAX + 1, "only the other connection's"
            release.set()
            assert await other == b"x"
            assert await asyncio.gather(*calls) == [b""] * len(calls)
    finally:
        await server.stop(0)
