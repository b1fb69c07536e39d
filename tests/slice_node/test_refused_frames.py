"""What a refused request held is freed at once, not by the garbage collector: that comes late, and much may wait."""

from __future__ import annotations

import gc
import types
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import InvalidName, Malformed, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.kept_frames import Frame
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change

from .brokers import connected, running
from .core_driver import CoreDriver, declare, publish
from .raw_session import RawSession

BAD_KEY = "k" * 300


def circles() -> list[Any]:
    """What only the collector frees, of requests: frames of sessions, and requests in the locals of functions."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [
        one
        for one in gc.garbage
        if isinstance(one, Frame | Effects)
        or (isinstance(one, types.FrameType) and isinstance(one.f_locals.get("request"), wire.PublishRequest))
    ]
    gc.garbage.clear()
    return found


async def test_it_is_in_no_circle(tmp_path: Path) -> None:
    """A client that was refused 400 changes of a megabyte, one after the other, took a node far over its budget."""
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        session = await RawSession.open(stub)
        await session.change(declare("q"))
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                with pytest.raises(InvalidName):
                    await session.change(publish(BAD_KEY, b"x"))
                with pytest.raises(ShoalError):
                    await session.ask(wire.SessionRequest(nacks=wire.Nacks(delay_ms=1, unseen=True)))
                with pytest.raises(grpc.aio.AioRpcError):
                    await stub.Publish(wire.PublishRequest(key=BAD_KEY.encode(), chunk=Chunk(bodies=[b"x"])))
            with pytest.raises(Malformed):
                await session.ask(wire.SessionRequest(nacks=wire.Nacks(delay_ms=1, unseen=True)))
            left = circles()
        finally:
            gc.enable()
    assert not left


def test_an_applied_refusal_is_in_no_circle() -> None:
    core = CoreDriver()
    gc.collect()
    gc.disable()
    try:
        core.change(declare("q"))
        data = wire.Change(steps=[publish(BAD_KEY, b"x")]).SerializeToString()
        assert core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)).refused is not None
        core.change(declare("r"))
        left = circles()
    finally:
        gc.enable()
    assert not left
