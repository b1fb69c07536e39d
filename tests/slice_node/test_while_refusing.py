"""A slice whose checkpoints fail too long refuses changes, but for those that free room."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.checkpoints import Checkpoints

from .brokers import connected, running
from .core_driver import acks, bind, declare, drop, publish, purge, unbind
from .raw_session import RawSession


async def test_a_slice_whose_checkpoints_fail_can_be_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        session = await RawSession.open(SliceServiceStub(channel))
        await session.change(declare("q", "r"), bind("q", "k", "l"), publish("k", b"a", b"b"))
        monkeypatch.setattr(Checkpoints, "refusal", property(lambda _: "made up"))
        for step in (declare("s"), bind("r", "k"), publish("k", b"c")):
            with pytest.raises(ResourceExhausted, match="this slice takes no changes now: made up"):
                await session.change(step)
        for step in (acks(("q", "k", 1, 2)), unbind("q", "l"), purge("q"), drop("q")):
            await session.change(step)
        assert broker.state.load_queue(b"q") is None
        session.call.cancel()
