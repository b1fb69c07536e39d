"""Sessions that do not open: what they send waits in the transport, and others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

from .brokers import connected, running, served
from .raw_session import RawSession

WAIT_S = 60


async def failure(call: Any) -> Any:
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    return None


async def test_streams_that_do_not_open_hold_up_no_session_of_others(tmp_path: Path) -> None:
    """Two and a quarter megabytes of a first frame, for each of hundreds of streams, were in nobody's account."""
    async with (
        running(tmp_path) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address, options=(("test", 1),)) as greedy,
        grpc.aio.insecure_channel(address, options=(("test", 2),)) as honest,
        asyncio.timeout(WAIT_S),
    ):
        silent: list[Any] = [greedy.stream_stream("/shoal.v1.SliceService/Session")() for _ in range(150)]
        ends = [asyncio.ensure_future(failure(call)) for call in silent]
        for _ in range(5):
            session = await RawSession.open(SliceServiceStub(honest))
            await session.attach([])
        for end in asyncio.as_completed(ends):
            told = await end
            if not isinstance(told, Unavailable):  # gRPC may refuse some of more than 115 streams of a connection.
                break
        assert isinstance(told, DeadlineExceeded | ResourceExhausted)
        for call in silent:
            call.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def test_a_session_is_not_read_while_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(WAIT_S):
        monkeypatch.setattr(broker.watchman, "guard_memory", lambda: None)  # It would look, and find enough.
        broker.watchman.memory_short = ResourceExhausted("short", subject="memory")
        stub: Any = channel.stream_stream("/shoal.v1.SliceService/Session")()
        assert isinstance(await failure(stub), ResourceExhausted)
