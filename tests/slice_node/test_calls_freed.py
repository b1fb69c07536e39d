"""A call that ends with an error is freed at once, with all that its frames hold: the garbage collector of a node looks
at objects that are some seconds old too seldom (GC_THRESHOLDS)."""

from __future__ import annotations

import asyncio
import gc
import types
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from tests.slice_node.brokers import WAIT_S, connected, running
from tests.slice_node.raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

CALLS = 5
KEPT = (types.FrameType, types.TracebackType, asyncio.Task)


class Calls:
    """Makes calls that end with an error."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub: SliceServiceAsyncStub = SliceServiceStub(channel)

    async def unary(self) -> None:
        await refused(self._stub.Bind(wire.BindRequest(queue=b"none", keys=[b"k"])))

    async def unary_work(self) -> None:
        await refused(self._stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"none"))))

    async def unreadable(self) -> None:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            "/shoal.v1.SliceService/Bind"
        )
        await refused(method(b"\x0a\xff"))

    async def watch(self) -> None:
        await refused(self._stub.Watch(wire.WatchRequest(members=b"")).read())

    async def session_without_open(self) -> None:
        call = self._stub.Session()
        await call.write(wire.SessionRequest(sequence=3))
        await refused(call.read())

    async def session_with_an_unreadable_frame(self) -> None:
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(
            "/shoal.v1.SliceService/Session"
        )
        call = method()
        await call.write(wire.SessionRequest(open=wire.Open(producer=b"x" * 16)).SerializeToString())
        await call.write(b"\x0a\xff")
        await refused(call.read())

    async def refused_in_a_session(self) -> None:
        session = await RawSession.open(self._stub)
        with pytest.raises(Exception, match="none"):
            await session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"none")))
        session.call.cancel()


async def refused(answer: Awaitable[object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        async with asyncio.timeout(WAIT_S):
            await answer


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        yield Calls(channel)


KINDS = [name for name in vars(Calls) if not name.startswith("_")]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_that_ends_with_an_error_leaves_no_circle(calls: Calls, kind: str) -> None:
    call: Callable[[], Awaitable[None]] = getattr(calls, kind)
    await call()  # What is made once for all calls is made now.
    gc.collect()
    gc.disable()
    try:
        for _ in range(CALLS):
            await call()
        for _ in range(100):  # The server's side of the last ones ends.
            await asyncio.sleep(0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(one).__name__ for one in gc.garbage if isinstance(one, KEPT) or of_shoal(one))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left


def of_shoal(one: object) -> bool:
    return type(one).__module__.startswith("shoal_slice_node")
