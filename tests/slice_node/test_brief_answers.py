"""Quick reads with brief answers wait for no large answers that nobody reads; others take nothing while they try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation, Start
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    BRIEF_ANSWER_BYTES,
    BRIEF_ANSWERS_BYTES,
    LARGE_ANSWER_BYTES,
    PASSED_MAX,
    SMALL_ANSWERS_BYTES,
    STALLED_SMALL_MS,
)
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import MEMORY_BYTES_MIN
from shoal_slice_node.core.memory import plan_memory
from shoal_slice_node.core.node.reads import Length

from .brokers import connected, running
from .core_driver import bind, declare, publish
from .long_reads import few_answers, read, settled, until
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 60


@asynccontextmanager
async def node(tmp_path: Path) -> AsyncIterator[tuple[Broker, SliceServiceAsyncStub, RawSession]]:
    async with running(tmp_path, options=few_answers(3)) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(WAIT_S):
            stub = SliceServiceStub(channel)
            session = await RawSession.open(stub)
            await session.change(declare("q"), bind("q", "k"))
            yield broker, stub, session
            await settled(broker)
            assert not (broker.answers.brief.used_bytes or broker.pull_lines)


@contextmanager
def unread(room: AnswerRoom) -> Iterator[list[Reservation]]:
    """Holds the room for large answers, as clients that do not read do; others of them wait."""
    held: list[Reservation] = []
    for number in range(30):
        room.reserve(held.append, f"hostile {number}", length=Length.LARGE)
    held[0].settle(LARGE_ANSWER_BYTES - 1)  # Where the room is full, sessions are read frame by frame.
    assert 2 <= len(held) < 30 and 0 < room.share.free_bytes < LARGE_ANSWER_BYTES
    yield held
    while held:
        held.pop().release()


def pull(messages_max: int = 0, peek: bool = False) -> wire.SessionRequest:
    return wire.SessionRequest(pull=wire.Pull(queue=b"q", messages_max=messages_max, peek=peek))


@pytest.mark.parametrize("door", ["session", "unary"])
async def test_brief_reads_wait_for_no_large_answers_that_are_not_read(tmp_path: Path, door: str) -> None:
    """Beside 30 connections that did not read a large peek, and came anew, each took 3 s."""
    async with node(tmp_path) as (broker, stub, session):
        await session.change(publish("k", b"x"))
        with unread(broker.answers):
            await read(stub, door, pull(peek=True))
            await read(stub, door, wire.SessionRequest(describe=wire.Describe(queues=[b"q"], bindings=True)))
            await read(stub, door, pull())


@pytest.mark.parametrize("peek", [True, False])
async def test_a_read_whose_answer_is_not_brief_waits_and_has_taken_nothing(tmp_path: Path, peek: bool) -> None:
    async with node(tmp_path) as (broker, _, session):
        await session.change(publish("k", bytes(BRIEF_ANSWER_BYTES)), publish("k", b"x"))
        with unread(broker.answers):
            asked = [await session.write(pull(1, peek)) for _ in range(2)]
            await session.change(declare("later"))  # The slice has begun them.
            await until(lambda: not broker.answers.brief.used_bytes)
            assert not session.answers.keys() & set(asked)
            assert not broker.node.dispatcher.registry.shares.owed.used_bytes
        await session.read_until(lambda: all(number in session.answers for number in asked), WAIT_S)
        found = [session.answers[number].pulled.deliveries for number in asked]
        assert [[(one.low, one.redelivered) for one in some] for some in found] == [[(1, 0)], [(1 + (not peek), 0)]]


async def test_a_pull_brings_what_is_brief_while_there_is_no_room_for_more(tmp_path: Path) -> None:
    async with node(tmp_path) as (broker, _, session):
        await session.change(*[publish("k", bytes(BRIEF_ANSWER_BYTES // 4))] * 10)
        with unread(broker.answers):
            found = (await session.ask(pull())).pulled
            assert [one.low for one in found.deliveries] == [1, 2, 3] and found.ByteSize() <= BRIEF_ANSWER_BYTES
            assert [one.low for one in (await session.ask(pull(1))).pulled.deliveries] == [4]
        assert len((await session.ask(pull())).pulled.deliveries) == 6


def test_sources_take_turns_in_the_room_for_brief_answers() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES + BRIEF_ANSWERS_BYTES, BRIEF_ANSWERS_BYTES)
    large: list[Reservation] = []
    room.reserve(large.append, "large")
    brief: list[Reservation] = []
    for _ in range(BRIEF_ANSWERS_BYTES // BRIEF_ANSWER_BYTES + 1):
        room.reserve(brief.append, "many")
    assert room.brief.free_bytes == 0 and all(one.is_brief and one.must_be_quick for one in brief)
    order: list[int] = []

    def begins(number: int) -> Start:
        def start(reservation: Reservation) -> None:
            order.append(number)
            reservation.release()

        return start

    for number in range(2 * PASSED_MAX):
        room.reserve(begins(number), number)
    had = len(brief)
    brief[0].release()
    assert order == list(range(PASSED_MAX)) and len(brief) == had + 1, "those that had none came first"
    large[0].release()
    assert order == list(range(2 * PASSED_MAX)), "in the room for large ones"
    for one in brief:
        one.release()
    assert not (room.brief.used_bytes or room.share.used_bytes or room.waiting)


def test_sessions_that_do_not_read_leave_room_for_brief_answers_and_others_are_let_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms, share, all_of = 1_000, Share("brief answers", 1_000), Writers()
    monkeypatch.setattr(writers, "steady_ms", lambda: now_ms)

    def session(connection: str, brief_bytes: int) -> Session:
        one = Session(len(all_of) + 1, 1 << 20)
        all_of.open(one, connection, lambda: None, lambda: None)
        all_of.began(one, lambda: 50_000, lambda: brief_bytes)
        share.hold(brief_bytes)
        return one

    gateway = [session("gateway", 0) for _ in range(5)]
    alone, *many = [session("alone", 300), session("many", 250), session("many", 250), session("many", 200)]
    assert not all_of.end_stalled_brief(share, 300), "it is not long yet"
    now_ms += STALLED_SMALL_MS
    assert all_of.end_stalled_brief(share, 300) == many[:2]
    assert not all_of.end_stalled_brief(share, 300), "what these have is about to be free"
    assert all_of.end_stalled_brief(share, 900) == [alone, many[2]]
    assert not any(one.ended_by for one in gateway)


def test_the_smallest_node_has_room_for_three_large_answers_beside_them() -> None:
    room = AnswerRoom(plan_memory(MEMORY_BYTES_MIN >> 20).answers_bytes, BRIEF_ANSWERS_BYTES)
    assert room.share.limit_bytes >= 3 * LARGE_ANSWER_BYTES
