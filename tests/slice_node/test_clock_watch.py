"""A machine's clock that was ahead and is set back: what that does is told, where an operator looks."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import grpc
import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.clock_watch import ClockWatch
from shoal_slice_node.adapters.limits import CLOCK_BEHIND_MS

from .brokers import running, served

WAIT_S = 30
DAY_MS = 86_400_000


def test_it_tells_once_when_the_clock_is_behind_and_when_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = ClockWatch()
    now_ms = 1_800_000_000_000
    for behind_ms in (-5_000, 0, CLOCK_BEHIND_MS - 1):
        watch.look(now_ms, now_ms + behind_ms)
        assert (watch.trouble, watch.behind_ms) == ("", 0)
    for later_ms in (0, 100, 200):
        watch.look(now_ms + later_ms, now_ms + DAY_MS)
        assert watch.behind_ms == DAY_MS - later_ms
    assert "86399 s behind the newest record" in watch.trouble and "2027-01-16 08:00:00 UTC" in watch.trouble
    watch.look(now_ms + DAY_MS, now_ms + DAY_MS)
    assert watch.trouble == "" and len(caplog.records) == 2


async def test_a_clock_that_is_set_back_is_told_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_ms, real_ns = 0, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + ahead_ms * 1_000_000)
    async with (
        running(tmp_path) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(WAIT_S),
    ):
        stub = SliceServiceStub(channel)
        ahead_ms = DAY_MS
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Publish(wire.PublishRequest(key=b"@q", chunk=Chunk(bodies=[b"x"])))
        assert broker.trouble == ""
        ahead_ms = 0
        while not broker.trouble:  # noqa: ASYNC110 - a tick looks
            await asyncio.sleep(0.01)
        assert "s behind the newest record: messages with a time to live keep it" in broker.trouble
        ahead_ms = DAY_MS + 60_000
        while broker.trouble:  # noqa: ASYNC110 - a tick looks
            await asyncio.sleep(0.01)
