"""A node that nobody uses is told the time less often, so that it takes little of a processor."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import broker as module
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import IDLE_TICK_MS

from .brokers import connected, running
from .raw_session import RawSession

IDLE_MS = 200
WAIT_S = 30
TTL_MS = 2_000
"""Longer than it takes until the node is idle."""


def ticks_of(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    """The times of all ticks from now on."""
    times: asyncio.Queue[int] = asyncio.Queue()
    tick = broker.node.tick

    def noted(now_ms: int, wall_ms: int) -> None:
        times.put_nowait(now_ms)
        tick(now_ms, wall_ms)

    monkeypatch.setattr(broker.node, "tick", noted)
    return times


async def next_ticks(times: asyncio.Queue[int], count: int) -> list[int]:
    while not times.empty():
        times.get_nowait()
    return [await times.get() for _ in range(count)]


async def a_gap(times: asyncio.Queue[int], seldom: bool) -> None:
    """Waits for two ticks with a longer, or else a shorter, time between them than an idle node's."""
    async with asyncio.timeout(WAIT_S):
        while True:
            first, second = await next_ticks(times, 2)
            if (second - first >= IDLE_TICK_MS) == seldom:
                return


async def test_a_node_that_nobody_uses_ticks_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_MS", IDLE_MS)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        times = ticks_of(broker, monkeypatch)
        await a_gap(times, seldom=True)
        assert all(later - earlier >= IDLE_TICK_MS for earlier, later in pairwise(await next_ticks(times, 5)))
        session = await RawSession.open(SliceServiceStub(channel), producer=b"")
        await a_gap(times, seldom=False)
        await asyncio.sleep(2 * IDLE_MS / 1000)
        await a_gap(times, seldom=False)  # A session alone keeps it awake.
        session.call.cancel()
        await a_gap(times, seldom=True)


async def test_what_is_written_without_a_session_is_followed_by_usual_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_MS", IDLE_MS)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        times = ticks_of(broker, monkeypatch)
        await a_gap(times, seldom=True)
        await SliceServiceStub(channel).Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
        await a_gap(times, seldom=False)


async def test_an_idle_node_hands_out_nothing_that_expired_since_its_last_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knew the time by its ticks alone."""
    monkeypatch.setattr(module, "IDLE_MS", IDLE_MS)
    monkeypatch.setattr(module, "IDLE_TICK_MS", 1_000 * WAIT_S)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"]), ttl_ms=TTL_MS))
        await asyncio.sleep(TTL_MS / 1000)
        found = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", peek=True)))
        assert not found.deliveries
