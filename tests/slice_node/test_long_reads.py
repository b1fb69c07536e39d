"""Reads that take long keep no room from the quick ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import (
    BRIEF_ANSWERS_BYTES,
    LARGE_ANSWER_BYTES,
    PASSED_MAX,
    QUICK_ANSWERS_MAX,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.core.limits import QUICK_BINDINGS_MAX, QUICK_STEPS_MAX
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.turns import Source, Work, begun

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare, publish
from .long_reads import BINDINGS, LONG, LOOKERS, READS, few_answers, filled, read, room_for, settled, until

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


@pytest.mark.parametrize(("answers", "kept"), [(1, 0), (2, 1), (3, 1), (8, 2), (40, QUICK_ANSWERS_MAX)])
def test_some_room_is_kept_from_long_reads(answers: int, kept: int) -> None:
    """30 connections that looked at large queues again and again made others' pulls wait for 10 s."""
    room = room_for(answers)
    held: list[Reservation] = []
    for source in LONG * 2:
        room.reserve(held.append, source, length=Length.LONG)
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
    assert len(held) == 2 * len(LONG) and not room.share.used_bytes and not room.waiting
    assert not any(room._works.values())


def test_long_answers_that_nobody_reads_keep_no_other_long_read_waiting() -> None:
    """They are kept from working beside each other, not from their room."""
    room = room_for(8)
    held: list[Reservation] = []
    for source in LONG:
        room.reserve(held.append, source, length=Length.LONG)
    assert len(held) == 6
    for one in held:
        one.settle(LARGE_ANSWER_BYTES // 4)
    assert len(held) > 20


def test_a_long_read_begins_as_another_has_ended_though_its_answer_is_large() -> None:
    room = room_for(8)
    held: list[Reservation] = []
    for source in LONG[:7]:
        room.reserve(held.append, source, length=Length.LONG)
    assert len(held) == 6
    held[0].settle(LARGE_ANSWER_BYTES + 1)
    assert len(held) == 7


@pytest.mark.parametrize("answers", [2, 8])
def test_long_reads_have_their_turn_though_others_always_wait(answers: int) -> None:
    room = room_for(answers)
    honest: list[Reservation] = []
    long: list[Reservation] = []
    for number in range(answers):
        room.reserve(honest.append, number)
    for source in LONG[:10]:
        room.reserve(long.append, source, length=Length.LONG)
    released = 0
    while len(long) < answers - 1 and released < len(honest):
        room.reserve(honest.append, released + answers)
        honest[released].release()
        for one in long:
            one.release()
        released += 1
    assert len(long) == answers - 1
    assert released <= (2 * PASSED_MAX + 2) * answers


@pytest.mark.parametrize("answers", [2, 8])
def test_long_reads_never_take_the_room_of_quick_ones_however_many_of_these_begin(answers: int) -> None:
    """Each 256th quick one let a long one into the last room that was kept for them: then all waited for 3 s."""
    room = room_for(answers)
    long: list[Reservation] = []
    for source in LONG:
        room.reserve(long.append, source, length=Length.LONG)
    worked_on = len(long)
    for number in range(2_000):
        honest: list[Reservation] = []
        room.reserve(honest.append, number)
        assert len(honest) == 1 and len(long) == worked_on
        honest[0].release()
    long[0].release()
    assert len(long) == worked_on + 1


@pytest.mark.parametrize("seed", range(10))
def test_every_read_begins(seed: int) -> None:
    rng = random.Random(seed)
    brief_bytes = rng.choice((0, BRIEF_ANSWERS_BYTES))
    room = AnswerRoom(rng.choice((1, 2, 5)) * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES + brief_bytes, brief_bytes)
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
            room.reserve(start, rng.randrange(6), rng.choice((1_000, LARGE_ANSWER_BYTES)), rng.choice(list(Length)))
        elif held:
            held.pop(rng.randrange(len(held))).release()
    while held:
        held.pop().release()
    assert begun == asked and not (room.share.used_bytes or room.waiting or room._waiting or room._held)
    assert not (any(room._works.values()) or room.brief.used_bytes)


@pytest.mark.parametrize("door", ["session", "unary"])
@pytest.mark.parametrize("kind", ["peek", "describe"])
async def test_a_pull_does_not_wait_until_large_queues_were_looked_at_on_many_new_connections(
    tmp_path: Path, door: str, kind: str
) -> None:
    """Clients on a new connection for each peek made others' pulls wait 10 to 23 s: nothing told them from these."""
    async with running(tmp_path, options=few_answers()) as broker, AsyncExitStack() as stack, asyncio.timeout(60):
        connections = [await stack.enter_async_context(connected(broker, tmp_path)) for _ in range(LOOKERS + 1)]
        stubs = [SliceServiceStub(connection) for connection in connections]
        await filled(stubs[0])
        ended: list[str] = []

        async def ask(stub: SliceServiceAsyncStub, asked: wire.SessionRequest) -> None:
            await read(stub, door, asked)
            ended.append(kind)

        tasks = [asyncio.create_task(ask(stub, READS[kind])) for stub in stubs[1:]]
        await until(lambda: broker.answers.waiting)
        pulled = await stubs[0].Pull(wire.PullRequest(pull=wire.Pull(queue=b"small", messages_max=1)))
        assert [parse_chunk(one.chunk).bodies for one in pulled.deliveries] == [[b"here"]]
        assert len(ended) < 3
        await asyncio.gather(*tasks)
        await settled(broker)


@pytest.mark.parametrize("door", ["session", "unary"])
@pytest.mark.parametrize("kind", READS)
async def test_a_long_read_whose_client_leaves_while_it_waits_keeps_no_room(
    tmp_path: Path, door: str, kind: str
) -> None:
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            await filled(SliceServiceStub(channel))
            async with AsyncExitStack() as stack:
                for _ in range(LOOKERS):
                    stub = SliceServiceStub(await stack.enter_async_context(connected(broker, tmp_path)))
                    stack.callback(asyncio.create_task(read(stub, door, READS[kind])).cancel)
                await until(broker.answers._lines[Length.LONG].in_use)
            await settled(broker)
            await read(SliceServiceStub(channel), door, READS[kind])


@pytest.mark.parametrize("door", ["session", "unary"])
@pytest.mark.parametrize("kind", READS)
async def test_a_read_that_is_not_done_as_a_middling_one_is_done_as_a_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, kind: str
) -> None:
    """It must not begin anew as a middling one for ever."""
    monkeypatch.setattr("shoal_slice_node.adapters.requests.MIDDLING_STEPS_MAX", QUICK_STEPS_MAX)
    monkeypatch.setattr("shoal_slice_node.core.node.reads.MIDDLING_BINDINGS_MAX", 2 * BINDINGS)
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(20):
            await filled(SliceServiceStub(channel))
            await read(SliceServiceStub(channel), door, READS[kind])
            await settled(broker)


@pytest.mark.parametrize("kind", READS)
def test_a_read_that_is_not_quick_takes_nothing_and_may_be_begun_anew(kind: str) -> None:
    core = CoreDriver()
    core.change(declare("large", "small"), bind("small", *(f"key {number}" for number in range(QUICK_BINDINGS_MAX))))
    for start in range(0, BINDINGS, 1_000):
        core.change(bind("large", *(f"key {number}" for number in range(start, min(BINDINGS, start + 1_000)))))
    core.change(publish("key 0", b"here"))
    session = core.session()

    def begun(name: bytes) -> Read:
        if kind == "describe":
            return requests.describe(core.node, wire.Describe(queues=[name], bindings=True))
        pull = wire.Pull(queue=name, messages_max=1_000, peek=kind == "peek")
        return requests.pull(core.node, session, pull, 0, 1_000)

    def messages(begin: Callable[[], Work[wire.Answer | None]]) -> int | None:
        answers: list[wire.Answer | None] = []
        core.node.add_work(Source("connection", 1), begin(), lambda answer, _: answers.append(answer))
        while not answers:
            core.node.turn()
        (answer,) = answers
        if answer is None:
            return None
        return answer.description.queues[0].messages if kind == "describe" else len(answer.pulled.deliveries)

    assert [begun(name).length() for name in (b"small", b"large")] == [Length.QUICK, Length.LONG]
    assert begun(b"large").may_be_tried is (kind != "pull"), "to load it in vain gains nothing"
    assert messages(partial(begun(b"small").within, QUICK_STEPS_MAX)) == 1
    assert kind == "pull" or messages(partial(begun(b"large").within, QUICK_STEPS_MAX)) is None
    assert messages(begun(b"large").whole) == 1
    assert kind != "pull" or messages(partial(begun(b"large").within, QUICK_STEPS_MAX)) == 0, (
        "it is loaded: this is quick now"
    )
    assert begun(b"large").length() is (Length.QUICK if kind == "pull" else Length.LONG)


@pytest.mark.parametrize("messages", [1, 10_000])
def test_a_peek_that_finds_nothing_has_few_steps_as_a_quick_one_however_many_it_asks_for(messages: int) -> None:
    """One that asked for 10,000 had four times as many, and others' pulls waited for seconds again."""
    core = CoreDriver()
    core.change(declare("large"))
    for start in range(0, BINDINGS, 1_000):
        core.change(bind("large", *(f"key {number}" for number in range(start, start + 1_000))))
    pull = wire.Pull(queue=b"large", messages_max=messages, peek=True)
    assert (
        sum(1 for _ in requests.pull(core.node, core.session(), pull, 0, 1_000).within(QUICK_STEPS_MAX))
        <= QUICK_STEPS_MAX
    )


@pytest.mark.parametrize("door", ["session", "unary"])
@pytest.mark.parametrize("kind", READS)
async def test_a_read_of_a_large_queue_is_not_tried_as_a_quick_one_where_others_wait(
    tmp_path: Path, door: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that hung up after that, and came anew, kept others waiting for 0.4 to 1.9 s."""
    quick: list[int] = []

    def tried(work: Work[object], steps_max: int) -> Work[object]:
        quick.append(steps_max)
        return begun(work, steps_max)

    monkeypatch.setattr(requests, "begun", tried)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(60):
        await filled(SliceServiceStub(channel))
        with patch.object(AnswerRoom, "others_wait", lambda _: True):
            await read(SliceServiceStub(channel), door, READS[kind])
        assert not quick
        await settled(broker)
        await read(SliceServiceStub(channel), door, READS[kind])
        assert bool(quick) == (kind != "pull")
        await settled(broker)
