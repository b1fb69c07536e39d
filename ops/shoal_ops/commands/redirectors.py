"""Asks redirectors over plain gRPC which slices there are, and where. Not here: what is printed about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.grpc_errors import NO_REDIRECTOR, from_rpc_error
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_ops.limits import VERB_DEADLINE_S
from shoal_runtime.channels import open_channel

Answer = TypeVar("Answer")


async def ask_redirector(at: str, ask: Callable[[grpc.aio.Channel, float], Awaitable[Answer]]) -> tuple[str, Answer]:
    """Returns the first of the redirectors `at` (separated by commas) that answers, and its answer. If none answers,
    raises the error of the last one."""
    addresses = at.split(",")
    problem: ShoalError = Unavailable(f"{at!r} names no redirector", subject=at)
    for address in addresses:
        async with open_channel(address) as channel:
            try:
                return address, await ask(channel, VERB_DEADLINE_S / len(addresses))
            except grpc.RpcError as error:
                problem = from_rpc_error(error, NO_REDIRECTOR)
            except Unavailable as error:
                problem = error
    raise type(problem)(f"redirector {addresses[-1]}: {problem.message}", subject=addresses[-1])


async def first_map(channel: grpc.aio.Channel, timeout_s: float) -> wire.WatchMapResponse:
    """Returns the whole map, as a redirector has it now. Raises grpc.RpcError and Unavailable."""
    stream = RedirectorServiceStub(channel).WatchMap(wire.WatchMapRequest(), timeout=timeout_s)
    try:
        async for response in stream:
            return response
    finally:
        stream.cancel()
    raise Unavailable("it ended its answer before the map was complete; it may be stopping: try again")
