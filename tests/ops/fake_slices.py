"""A redirector and slices that answer what a test wants: for what a real cluster does not do at will."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from shoal_contract.wire import admin_pb2, redirector_pb2, slice_pb2

PARTITIONS = 8
WAIT_S = 60


@dataclass(frozen=True)
class FakeSlice:
    """`figures` None: its administration is not to be reached. `leads` False: it has no leader. `answers` False:
    nothing listens where the map says."""

    name: str
    figures: admin_pb2.FiguresResponse | None = None
    leads: bool = True
    answers: bool = True


@asynccontextmanager
async def served(*slices: FakeSlice, slice_only: bool = False) -> AsyncIterator[str]:
    """The redirector's address; with `slice_only` the first slice's."""
    async with AsyncExitStack() as stack:
        known = [await _start(one, stack) for one in slices]
        if slice_only:
            yield known[0].address
            return
        owners = [number % len(known) for number in range(PARTITIONS)]
        whole = redirector_pb2.WatchMapResponse(map_version=7, partitions=PARTITIONS, owners=owners, slices=known)
        located = redirector_pb2.LocateResponse(map_version=7, slices=known)
        answers = {
            "RedirectorService/WatchMap": (redirector_pb2.WatchMapRequest, whole),
            "RedirectorService/Locate": (redirector_pb2.LocateRequest, located),
        }
        yield await _serve(stack, answers)


@contextmanager
def served_beside(*slices: FakeSlice) -> Iterator[str]:
    """The same for a test that blocks: they are served by a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake slices")
    thread.start()
    serving = served(*slices)

    def done(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_S)

    try:
        yield done(serving.__aenter__())
        done(serving.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


async def _start(one: FakeSlice, stack: AsyncExitStack) -> redirector_pb2.SliceAddress:
    """Where clients connect, and on another port its administration."""
    if not one.leads:
        return redirector_pb2.SliceAddress(slice=one.name)
    if not one.answers:
        return redirector_pb2.SliceAddress(slice=one.name, address="127.0.0.1:1", epoch=3)
    described = (slice_pb2.DescribeRequest, slice_pb2.DescribeResponse())
    address = await _serve(stack, {"SliceService/Describe": described})
    answered = {} if one.figures is None else {"AdminService/Figures": (admin_pb2.FiguresRequest, one.figures)}
    admin = await _serve(stack, answered)
    return redirector_pb2.SliceAddress(slice=one.name, address=address, epoch=3, admin_address=admin)


async def _serve(stack: AsyncExitStack, answers: dict[str, tuple[Any, Any]]) -> str:
    """Starts a server that has one answer for each method; returns its address."""
    server = grpc.aio.server()
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    for path, (request, answer) in answers.items():
        service, _, method = path.partition("/")
        handler = _stream(request, answer) if method == "WatchMap" else _unary(request, answer)
        generic = grpc.method_handlers_generic_handler(f"shoal.v1.{service}", {method: handler})
        server.add_generic_rpc_handlers((generic,))
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return address


def _unary(request: Any, answer: Any) -> Any:
    async def call(_: object, __: object) -> Any:
        return answer

    return grpc.unary_unary_rpc_method_handler(call, request.FromString, type(answer).SerializeToString)


def _stream(request: Any, answer: Any) -> Any:
    async def call(_: object, __: object) -> AsyncIterator[Any]:
        yield answer

    return grpc.unary_stream_rpc_method_handler(call, request.FromString, type(answer).SerializeToString)
