"""Sessions that each leave few bytes of answers unread: many of them together must not keep others waiting for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.limits import (
    ANSWERS_HELD_FLOOR_BYTES,
    ANSWERS_SMALL_PARTS,
    LARGE_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
    STALLED_SMALL_MS,
    STALLED_SMALL_PER_LOOK,
)
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import MEMORY_BYTES_MIN
from shoal_slice_node.core.memory import plan_memory

from .brokers import OPTIONS, running, served
from .raw_session import RawSession

WAIT_S = 60
BODY_BYTES = 50_000
SESSIONS = 90
NARROWEST = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024), ("grpc.use_local_subchannel_pool", 1))
"""Options of a channel whose transport takes next to nothing for a client that does not read."""


class Standing:
    """Sessions that stand still since the clock's beginning, each with some bytes of answers. What all of them hold
    fills the share."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock_ms = 1_000
        monkeypatch.setattr(writers, "steady_ms", lambda: self.clock_ms)
        self.writers = Writers()
        self.held_bytes = 0

    def add(self, connection: str, *sizes_bytes: int) -> list[Session]:
        sessions = []
        for size_bytes in sizes_bytes:
            session = Session(len(self.writers) + 1, 1 << 20)
            self.writers.open(session, connection, lambda: None, lambda: None)
            self.writers.began(session, partial(int, size_bytes))
            self.held_bytes += size_bytes
            sessions.append(session)
        return sessions

    def end(self, needed_bytes: int, limit_bytes: int = 0) -> list[Session]:
        share = Share("answers", limit_bytes or self.held_bytes)
        share.used_bytes = self.held_bytes
        return self.writers.end_stalled_small(share, needed_bytes)


async def test_others_do_not_wait_for_ever_for_many_who_leave_few_answers_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """480 sessions with 50 KB each filled the share, none of them was ever ended, and all others waited for ever."""
    monkeypatch.setattr(writers, "STALLED_SMALL_MS", 300, raising=False)
    options = replace(
        OPTIONS, memory=replace(OPTIONS.memory, answers_bytes=2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    )
    async with (
        running(tmp_path, options=options) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address, options=NARROWEST) as narrow,
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(WAIT_S),
    ):
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(BODY_BYTES)])))
        rests = await RawSession.open(stub)
        await rests.attach([b"q"])
        peek = wire.Pull(queue=b"q", messages_max=1, peek=True)
        greedy = [await RawSession.open(SliceServiceStub(narrow)) for _ in range(SESSIONS)]
        for session in greedy:
            await session.write(wire.SessionRequest(pull=peek))
        while broker.answers.share.free_bytes >= LARGE_ANSWER_BYTES:  # noqa: ASYNC110 - the node is doing it
            await asyncio.sleep(0.005)
        left = SESSIONS
        while left == SESSIONS:  # On a slow machine the transport may still take some, and so make room.
            assert (await stub.Pull(wire.PullRequest(pull=peek))).deliveries
            left = len(broker.writers) - 1
        assert left > 0, "no more end than others need"
        assert not rests.call.done()
        reads = [asyncio.ensure_future(session.read_until(lambda: False)) for session in greedy]
        ended, others = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        failure = next(iter(ended)).exception()
        assert isinstance(failure, grpc.aio.AioRpcError)
        error = from_rpc_error(failure)
        assert isinstance(error, ResourceExhausted) and "answers fill their share" in error.message
        for read in others:
            read.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def test_of_many_who_hold_little_those_of_the_largest_connection_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Standing(monkeypatch)
    [alone] = standing.add("alone", 900)
    crowd = standing.add("crowd", *[300] * 10)
    standing.add("rests", 2)
    needed_bytes = 650
    assert not standing.end(needed_bytes), "it is not long yet"
    standing.clock_ms += STALLED_SMALL_MS
    ended = standing.end(needed_bytes)
    assert len(ended) == 3 and set(ended) < set(crowd), "as many as are needed"
    assert alone.ended_by is None
    assert not standing.end(needed_bytes), "what ended sessions hold is about to be free"


def test_small_answers_end_only_while_together_they_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait, and whatever honest work holds: a session that rests with two bytes is let be."""
    standing = Standing(monkeypatch)
    [rests] = standing.add("rests", 2)
    standing.add("crowd", *[100] * 80)
    standing.clock_ms += STALLED_SMALL_MS
    limit_bytes = standing.held_bytes
    while ended := standing.end(100 * LARGE_ANSWER_BYTES, limit_bytes):
        assert rests not in ended
    left_bytes = sum(
        100 for session in standing.writers.sessions.values() if session.ended_by is None and session != rests
    )
    assert limit_bytes // ANSWERS_SMALL_PARTS - 100 <= left_bytes <= limit_bytes // ANSWERS_SMALL_PARTS


def test_small_answers_are_let_be_while_a_large_one_is_about_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Standing(monkeypatch)
    standing.add("small", *[ANSWERS_HELD_FLOOR_BYTES - 1] * 4)
    standing.clock_ms += STALLED_SMALL_MS
    large = standing.add("large", ANSWERS_HELD_FLOOR_BYTES)
    assert not standing.end(ANSWERS_HELD_FLOOR_BYTES)
    assert len(standing.end(ANSWERS_HELD_FLOOR_BYTES + 1)) == 1
    assert large[0].ended_by is None


def test_a_session_that_reads_is_not_ended_for_its_small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Standing(monkeypatch)
    [reads, stands] = standing.add("one", 1000, 1000)
    standing.clock_ms += STALLED_SMALL_MS
    standing.writers.ended(reads)
    standing.writers.began(reads, partial(int, 1000))
    assert standing.end(10 * LARGE_ANSWER_BYTES) == [stands]


def test_few_sessions_end_in_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Standing(monkeypatch)
    standing.add("crowd", *[100] * 1000)
    standing.clock_ms += STALLED_SMALL_MS
    assert len(standing.end(LARGE_ANSWER_BYTES)) == STALLED_SMALL_PER_LOOK


def test_what_small_answers_leave_fits_two_large_ones() -> None:
    least_bytes = plan_memory(MEMORY_BYTES_MIN >> 20).answers_bytes
    assert least_bytes - least_bytes // ANSWERS_SMALL_PARTS >= 2 * LARGE_ANSWER_BYTES
