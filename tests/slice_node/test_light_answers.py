"""Who asks for little long work need not wait for room that those who ask for most of it have taken."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import grpc
import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import (
    HEAVY_PASSED_MAX,
    LARGE_ANSWER_BYTES,
    LIGHT_ANSWERS_MAX,
    PASSED_MAX,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.core import long_work
from shoal_slice_node.core.limits import LONG_WORK_STEPS
from shoal_slice_node.core.long_work import LongWork
from shoal_slice_node.core.turns import Source, Turns, Work

from .brokers import connected, running
from .core_driver import bind, declare
from .raw_session import RawSession

BINDINGS = 3_000
HEAVY = [f"heavy {number}" for number in range(30)]


def room_for(answers: int) -> AnswerRoom:
    return AnswerRoom(answers * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES, HEAVY.__contains__)


@pytest.mark.parametrize(("answers", "kept"), [(1, 0), (2, 1), (3, 1), (8, 2), (40, LIGHT_ANSWERS_MAX)])
def test_some_room_is_kept_from_those_that_ask_for_most_of_the_long_work(answers: int, kept: int) -> None:
    """30 connections that looked at large queues again and again made others' pulls wait for 10 s."""
    room = room_for(answers)
    held: list[Reservation] = []
    for source in HEAVY * 2:
        room.reserve(held.append, source)
    assert len(held) == answers - kept
    honest: list[Reservation] = []
    for number in range(answers):
        room.reserve(honest.append, number)
    assert len(honest) == kept
    held[0].release()
    assert (len(held), len(honest)) == (answers - kept, kept + 1), "they come first"
    for number in range(1_000):
        for one in (*held[number : number + 1], *honest[number : number + 1]):
            one.release()
    assert len(held) == 2 * len(HEAVY) and not room.share.used_bytes and not room.waiting and not room._heavy_works


def test_what_nobody_reads_of_the_heavy_keeps_no_others_of_them_waiting() -> None:
    """They are kept from working beside each other, not from their room."""
    room = room_for(8)
    held: list[Reservation] = []
    for source in HEAVY:
        room.reserve(held.append, source)
    assert len(held) == 6
    for one in held:
        one.settle(LARGE_ANSWER_BYTES // 4)
    assert len(held) > 20


def test_a_heavy_one_begins_as_the_work_of_another_has_ended_though_its_answer_is_large() -> None:
    room = room_for(8)
    held: list[Reservation] = []
    for source in HEAVY[:7]:
        room.reserve(held.append, source)
    assert len(held) == 6
    held[0].settle(LARGE_ANSWER_BYTES + 1)
    assert len(held) == 7


@pytest.mark.parametrize("works_on", [False, True])
@pytest.mark.parametrize("answers", [2, 8])
def test_the_heavy_have_their_turn_though_others_always_wait(answers: int, works_on: bool) -> None:
    """`works_on`: what they have begun does not end."""
    room = room_for(answers)
    honest: list[Reservation] = []
    heavy: list[Reservation] = []
    for number in range(answers):
        room.reserve(honest.append, number)
    for source in HEAVY[:10]:
        room.reserve(heavy.append, source)
    released = 0
    while len(heavy) < answers - 1 + works_on and released < len(honest):
        room.reserve(honest.append, released + answers)
        honest[released].release()
        for one in heavy if not works_on else ():
            one.release()
        released += 1
    assert len(heavy) == answers - 1 + works_on
    turns = HEAVY_PASSED_MAX if works_on else PASSED_MAX
    assert released <= (turns + PASSED_MAX + 2) * answers


@pytest.mark.parametrize("seed", range(10))
def test_every_request_begins_whoever_becomes_heavy_meanwhile(seed: int) -> None:
    rng = random.Random(seed)
    heavy: set[int] = set()
    room = AnswerRoom(rng.choice((1, 2, 5)) * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES, heavy.__contains__)
    held: list[Reservation] = []
    asked = begun = 0

    def start(reservation: Reservation) -> None:
        nonlocal begun
        begun += 1
        held.append(reservation)

    for _ in range(2_000):
        choice = rng.random()
        if choice < 0.45:
            asked += 1
            room.reserve(start, rng.randrange(6), rng.choice((1_000, LARGE_ANSWER_BYTES)))
        elif choice < 0.55:
            heavy ^= {rng.randrange(6)}
        elif held:
            held.pop(rng.randrange(len(held))).release()
    while held:
        held.pop().release()
    assert begun == asked and not (room.share.used_bytes or room.waiting or room._waiting or room._held)


def test_who_had_a_quarter_of_the_average_is_heavy_and_old_steps_weigh_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "LONG_WORK_HALVED_STEPS", 1_000)
    work = LongWork()
    assert not work.is_heavy("nobody")
    for number in range(900):
        work.note(f"often {number % 9}")
    for _ in range(20):
        work.note("rarely")
    assert work.is_heavy("often 3") and not work.is_heavy("rarely")
    for _ in range(79):
        work.note("rarely")
    assert work.is_heavy("rarely")
    for _ in range(10_000):
        work.note("new")
    assert work.is_heavy("new") and not work.is_heavy("often 3") and len(work) == 1


def test_connections_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "LONG_WORK_CONNECTIONS_MAX", 10)
    work = LongWork()
    for _ in range(100):
        work.note("often")
    for number in range(1_000):
        work.note(number)
        assert len(work) <= 10
    assert work._all_steps == sum(work._steps.values())


def test_only_the_steps_of_long_work_count() -> None:
    def steps(count: int) -> Work[None]:
        for _ in range(count):
            yield

    done: list[object] = []
    todo = Turns()
    for number in range(100):
        todo.add(Source("short", number), steps(LONG_WORK_STEPS[0] - 1), lambda *_: done.append(1))
    todo.add(Source("long", 0), steps(50), lambda *_: done.append(1))
    while todo:
        todo.step()
    assert len(done) == 101
    assert todo.long_work._steps == {"long": 51 - LONG_WORK_STEPS[0]}


async def test_a_connection_that_peeks_into_a_large_queue_again_and_again_is_heavy(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(60):
        session = await RawSession.open(SliceServiceStub(channel))
        await session.change(declare("large"), declare("small"), bind("small", "key"))
        for start in range(0, BINDINGS, 1_000):
            await session.change(*(bind("large", f"key {number}") for number in range(start, start + 1_000)))

        async def peek(channel: grpc.aio.Channel, queue: bytes) -> None:
            pull = wire.Pull(queue=queue, messages_max=1, peek=True)
            await SliceServiceStub(channel).Pull(wire.PullRequest(pull=pull))

        async with connected(broker, tmp_path) as other:
            for _ in range(5):
                await peek(other, b"small")
            assert not len(broker.node.turns.long_work)
            await peek(channel, b"large")
            (connection,) = broker.node.turns.long_work._steps
            assert broker.answers._is_heavy(connection)
