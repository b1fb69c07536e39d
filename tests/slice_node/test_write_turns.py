"""Writes of sessions: so many in a turn of the event loop, connections in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime import aborting
from shoal_slice_node.adapters import session_stream
from shoal_slice_node.adapters.limits import WRITE_COST_BYTES, WRITES_PER_TURN_BYTES
from shoal_slice_node.adapters.write_turns import WriteTurns

from .brokers import connected, running
from .core_driver import bind, declare, publish
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 60

LARGE_BYTES = WRITE_COST_BYTES
"""A write of so many bytes counts as twice WRITE_COST_BYTES."""


async def _written(turns: WriteTurns, writers: list[tuple[str, int]]) -> list[tuple[int, str]]:
    """Lets each of `writers` (its connection, the bytes that it writes) write once. Returns the turn of the loop in
    which each wrote, and its connection, in their order."""
    written: list[tuple[int, str]] = []
    loop_turn = 0

    async def write(connection: str, size_bytes: int) -> None:
        await turns.turn(connection, size_bytes)
        written.append((loop_turn, connection))

    tasks = [asyncio.create_task(write(*writer)) for writer in writers]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        loop_turn += 1
        assert loop_turn < 10 * len(writers)
    return written


async def test_a_turn_of_the_loop_has_so_many_writes_as_their_bytes_allow() -> None:
    turns = WriteTurns(8 * WRITE_COST_BYTES)
    small = Counter(turn for turn, _ in await _written(turns, [("a", 0)] * 100))
    large = Counter(turn for turn, _ in await _written(turns, [("a", LARGE_BYTES)] * 100))
    assert max(small.values()) == 8 and max(large.values()) == 4
    assert len(small) == 13 and len(large) == 25, "no turn of the loop passes with nothing written"


async def test_what_is_larger_than_a_turn_is_written_alone() -> None:
    turns = WriteTurns(8 * WRITE_COST_BYTES)
    written = await _written(turns, [("a", 100 * WRITE_COST_BYTES)] * 5)
    assert len({turn for turn, _ in written}) == 5


async def test_connections_write_in_turn() -> None:
    turns = WriteTurns(2 * WRITE_COST_BYTES)
    written = await _written(turns, [("crowd", LARGE_BYTES)] * 100 + [("other", 0)] * 2)
    first = [place for place, (_, connection) in enumerate(written) if connection == "other"]
    assert first[-1] < 6, "one with few writes does not wait behind all of another"


async def test_a_writer_that_leaves_takes_no_turn() -> None:
    turns = WriteTurns(2 * WRITE_COST_BYTES)
    tasks = [asyncio.create_task(turns.turn("a", LARGE_BYTES)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait(tasks)
    written = await _written(turns, [("b", 0)])
    assert written[0][0] <= 2


async def test_nothing_is_left_to_do_once_all_have_written() -> None:
    turns = WriteTurns(2 * WRITE_COST_BYTES)
    await _written(turns, [("a", LARGE_BYTES)] * 10)
    for _ in range(3):
        await asyncio.sleep(0)
    assert turns._next_turn is None, "an idle node does not turn for nothing"


async def test_nothing_is_written_where_all_was_taken_back_while_it_waited_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_write = asyncio.Event(), asyncio.Event()
    written: list[wire.SessionResponse] = []

    async def turn(connection: str, size_bytes: int) -> None:
        asked.set()
        await may_write.wait()

    async def write(context: grpc.aio.ServicerContext[Any, Any], response: bytes) -> None:
        written.append(wire.SessionResponse.FromString(response))
        await aborting.write(context, response)

    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        consumer, publisher = await RawSession.open(stub), await RawSession.open(stub)
        await consumer.change(declare("q", "other"), bind("q", "k"))
        await consumer.attach([b"q"])
        monkeypatch.setattr(broker.write_turns, "turn", turn)
        monkeypatch.setattr(session_stream, "write", write)
        await publisher.write(wire.SessionRequest(change=wire.Change(steps=[publish("k", b"x")]).SerializeToString()))
        (feed,) = broker.dispatcher.feeds.values()
        (session,) = (attachment.session for attachment in feed.attachments.values())
        async with asyncio.timeout(WAIT_S):
            while not session.waiting:  # noqa: ASYNC110 - sessions tell nobody
                await asyncio.sleep(0)
            await asked.wait()
        broker.dispatcher.detach(session, 1)
        broker.dispatcher.attach(session, b"other", 1, 10, 1000)
        assert session.to_send, "the handle means another queue now: it is found when it leaves"
        may_write.set()
        await publisher.read_until(lambda: 1 in publisher.answers)
        await consumer.detach(1)
        consumer.call.cancel()
        publisher.call.cancel()
    assert len(written) == 2 and all(response.answers for response in written), "the answers, and no empty response"


async def test_a_large_fan_out_is_written_in_many_turns_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 sessions have 100 KB to write at the same moment, and others' frames are read between their writes."""
    sessions, body = 100, bytes(100_000)
    written: Counter[int] = Counter()
    loop_turn = 0
    all_written = asyncio.Event()

    async def write(context: grpc.aio.ServicerContext[Any, Any], response: bytes) -> None:
        if len(response) > len(body):
            written[loop_turn] += 1
            if written.total() == sessions:
                all_written.set()
        await aborting.write(context, response)

    async def count_turns() -> None:
        nonlocal loop_turn
        while True:
            await asyncio.sleep(0)
            loop_turn += 1

    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        consumers = [await RawSession.open(stub) for _ in range(sessions)]
        for number, consumer in enumerate(consumers):
            await consumer.change(declare(f"q{number}"), bind(f"q{number}", "k"))
            await consumer.attach([f"q{number}".encode()])
        monkeypatch.setattr(session_stream, "write", write)
        counting = asyncio.create_task(count_turns())
        await consumers[0].change(publish("k", body))
        async with asyncio.timeout(WAIT_S):
            await all_written.wait()
        counting.cancel()
        for consumer in consumers:
            consumer.call.cancel()
    assert max(written.values()) <= WRITES_PER_TURN_BYTES // (WRITE_COST_BYTES + len(body)) + 1
