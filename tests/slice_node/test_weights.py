"""What a session is owed for its frames bounds how many of them are worked on at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import requests
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import ANSWERS_PENDING_MAX, DESCRIBE_WEIGHT
from shoal_slice_node.core.node.reads import Read
from shoal_slice_node.core.turns import Source

from .brokers import connected, running
from .core_driver import bind, declare
from .raw_session import RawSession

ASKED = 100


async def test_few_describes_of_a_session_are_worked_on_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions with 1,000 describes of 10 bytes each kept all room for reads that wait, until nearly all of them
    ended together: no pull of another session was answered for minutes."""
    under_way = most = 0
    submit_read = requests.submit_read

    def submit(
        broker: Broker,
        source: Source,
        sequence: int,
        read: Read,
        answer: requests.Answered,
        *more: Any,
        **named: Any,
    ) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        def answered(found: wire.Answer) -> None:
            nonlocal under_way
            under_way -= 1
            answer(found)

        submit_read(broker, source, sequence, read, answered, *more, **named)

    monkeypatch.setattr(requests, "submit_read", submit)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(60):
        session = await RawSession.open(SliceServiceStub(channel))
        await session.change(declare("q"), bind("q", *(f"k{number}" for number in range(900))))
        asked = [await session.write(wire.SessionRequest(describe=wire.Describe(queues=[b"q"]))) for _ in range(ASKED)]
        await session.read_until(lambda: all(one in session.answers for one in asked))
    assert 1 < most <= ANSWERS_PENDING_MAX // DESCRIBE_WEIGHT + 1 < ASKED
