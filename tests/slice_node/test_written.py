"""What gRPC holds of a session that ended counts as deliveries until the call is over, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime.limits import ABORT_S
from shoal_slice_node.adapters import broker as brokers
from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.limits import ABORT_CROWDED_S
from shoal_slice_node.core.limits import LARGE_DELIVERY_BYTES

from .brokers import WAIT_S, running, served
from .core_driver import bind, declare
from .raw_session import NARROW, RawSession

BODY = bytes(1_000_000)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not true():  # noqa: ASYNC110 - other tasks' doing
            await asyncio.sleep(0.01)


async def test_what_is_written_counts_until_the_call_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted no more once the session ended: others were given as much again while gRPC had it."""
    monkeypatch.setattr(brokers, "ABORT_S", float(WAIT_S))
    monkeypatch.setattr(writers, "STALLED_SESSION_MS", 0)
    monkeypatch.setattr(writers, "STALLED_DELIVERIES_MS", 0)
    async with (
        running(tmp_path) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address) as channel,
        grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1), *NARROW)) as narrow,
    ):
        shares = broker.dispatcher.shares
        other, first = SliceServiceStub(channel), SliceServiceStub(narrow)
        stalled = await RawSession.open(first)
        await stalled.change(declare("q"), bind("q", "k"))
        await stalled.attach([b"q"])
        await other.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[BODY])))
        await until(lambda: bool(broker.writers._writing))
        (session,) = broker.writers._writing
        shares.deliveries.limit_bytes = shares.deliveries.used_bytes
        await until(lambda: session.closed)
        assert isinstance(session.ended_by, ResourceExhausted)
        await until(lambda: not session.under_way_bytes)
        assert shares.leaving_bytes == shares.deliveries.used_bytes >= len(BODY)

        waits = await RawSession.open(other)
        await waits.change(declare("r"), bind("r", "k"))
        await other.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(LARGE_DELIVERY_BYTES)])))
        await waits.attach([b"r"])
        await until(lambda: shares.line.waiting == 1)
        assert broker.abort_s(shares.leaving_bytes) == ABORT_CROWDED_S < ABORT_S < broker.abort_s(0) == WAIT_S
        assert not waits.deliveries and shares.leaving_bytes, "nothing is given while gRPC holds it"
        stalled.call.cancel()
        await waits.read_until(lambda: bool(waits.deliveries))
        assert not shares.leaving_bytes
        waits.call.cancel()
    assert not shares.deliveries.used_bytes
