"""Pulls of one owner: those from one queue are done in their order, and what waits for a long one of them goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from shoal_contract.errors import NoSuchQueue
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.limits import ADMITTED_AT_ONCE_MAX
from shoal_slice_node.adapters.long_work import LongWork
from shoal_slice_node.adapters.pull_lines import PullLines
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.turns import Source, Work

from .brokers import connected, running
from .core_driver import bind, declare, publish
from .long_reads import few_answers, settled, until
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

ONE, OTHER = Source("connection", 1), Source("connection", 2)


def test_pulls_of_a_queue_begin_one_after_the_other_and_those_of_others_at_once() -> None:
    lines, begun = PullLines(), list[str]()
    for name in ("first", "second", "third"):
        lines.enter(ONE, b"q", partial(begun.append, name))
    lines.enter(ONE, b"other", partial(begun.append, "of another queue"))
    lines.enter(OTHER, b"q", partial(begun.append, "of another owner"))
    assert begun == ["first", "of another queue", "of another owner"]
    lines.leave(ONE, b"q")
    assert begun[3:] == ["second"]
    for _ in range(2):
        lines.leave(ONE, b"q")
    lines.leave(ONE, b"other")
    assert begun[4:] == ["third"] and lines
    lines.leave(OTHER, b"q")
    assert not lines


def test_thousands_that_nobody_wants_any_more_leave_one_after_the_other() -> None:
    """Each begins the next as it leaves: not in a call within a call."""
    lines, begun = PullLines(), list[int]()

    def begin(number: int) -> None:
        begun.append(number)
        lines.leave(ONE, b"q")

    lines.enter(ONE, b"q", lambda: None)
    for number in range(5_000):
        lines.enter(ONE, b"q", partial(begin, number))
    lines.leave(ONE, b"q")
    assert begun == list(range(5_000)) and not lines


def test_of_an_owner_that_is_gone_nothing_begins() -> None:
    lines, begun = PullLines(), list[int]()
    for number in range(3):
        lines.enter(ONE, b"q", partial(begun.append, number))
    lines.forget(ONE)
    for _ in range(3):
        lines.leave(ONE, b"q")
    assert begun == [0] and not lines


async def test_what_waits_for_long_work_goes_on_a_few_at_a_time() -> None:
    long_work, gone_on = LongWork(), list[int]()
    long_work.begin(ONE)
    for number in range(2 * ADMITTED_AT_ONCE_MAX):
        long_work.when_over(ONE, partial(gone_on.append, number))
    calls = [asyncio.create_task(long_work.over(ONE)) for _ in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    long_work.end(ONE)
    assert gone_on == list(range(ADMITTED_AT_ONCE_MAX)) and not long_work
    await calls[1]
    assert gone_on == list(range(2 * ADMITTED_AT_ONCE_MAX)) and calls[0].cancelled()


async def test_what_waits_goes_on_waiting_where_a_long_read_of_its_own_began() -> None:
    long_work, gone_on = LongWork(), list[str]()
    long_work.begin(ONE)

    def long_one() -> None:
        gone_on.append("long")
        long_work.begin(ONE)

    long_work.when_over(ONE, long_one)
    long_work.when_over(ONE, partial(gone_on.append, "quick"))
    long_work.end(ONE)
    assert gone_on == ["long"]
    long_work.end(ONE)
    assert gone_on == ["long", "quick"] and not long_work
    long_work.begin(ONE)
    long_work.when_over(ONE, partial(gone_on.append, "of one that is gone"))
    long_work.forget(ONE)
    await asyncio.sleep(0)
    assert len(gone_on) == 2 and not long_work._waiting


@pytest.mark.parametrize("looks", [False, True])
async def test_long_pulls_of_a_session_do_not_wait_for_each_other_for_ever(tmp_path: Path, looks: bool) -> None:
    """Two of one queue did, for ever: the earlier one until the later one's work was done, and that one for its
    turn."""
    queues = [b"one", b"other"]
    async with running(tmp_path, options=few_answers(3)) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            session = await RawSession.open(SliceServiceStub(channel))
            for queue in queues:
                await session.change(declare(queue.decode()))
                for start in range(0, 3_000, 1_000):
                    keys = [f"key {number}" for number in range(start, start + 1_000)]
                    await session.change(bind(queue.decode(), *keys))
            for _ in range(5):
                asked = []
                for number in range(12):
                    peek = looks and number % 4 == 3
                    pull = wire.Pull(queue=queues[number % 2], messages_max=1, peek=peek)
                    asked.append(await session.write(wire.SessionRequest(pull=pull)))
                await session.read_until(lambda: all(one in session.answers for one in asked), 20)  # noqa: B023
            assert not (broker.pull_lines or broker.long_work)
            await settled(broker)


async def test_unary_pulls_behind_a_long_one_of_their_connection_keep_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had the room of a large answer, and stood behind the long one with it: others waited for that."""
    may_end, asked, real_pull = list[bool](), list[bytes](), requests.pull

    def endless() -> Work[wire.Answer]:
        while not may_end:
            yield
        return wire.Answer(pulled=wire.Deliveries())

    def pull(node: Node, session: Session, request: wire.Pull, *others: Any) -> Read:
        asked.append(request.queue)
        if request.queue == b"endless":
            return Read(endless, lambda _: endless(), lambda _: endless(), lambda: Length.LONG, False, b"endless")
        return real_pull(node, session, request, *others)

    monkeypatch.setattr(requests, "pull", pull)
    async with running(tmp_path, options=few_answers(3)) as broker, connected(broker, tmp_path) as channel:
        stub, pulls = SliceServiceStub(channel), list[asyncio.Task[wire.PullResponse]]()

        def begin_pull(queue: bytes) -> None:
            pulls.append(asyncio.create_task(pulled(stub, queue)))

        async with asyncio.timeout(30), connected(broker, tmp_path) as other:
            session = await RawSession.open(stub)
            await session.change(declare("q"), bind("q", "k"), publish("k", bytes(100_000)))
            begin_pull(b"endless")
            await until(lambda: bool(broker.long_work))
            for _ in range(10):
                begin_pull(b"nothing here")
            await until(lambda: len(asked) == 11)
            found = await pulled(SliceServiceStub(other), b"q")
            assert len(found.deliveries) == 1 and not any(one.done() for one in pulls)
            may_end.append(True)
            answers = await asyncio.gather(*pulls, return_exceptions=True)
            assert all(isinstance(one, grpc.RpcError) for one in answers[1:]), "there is no such queue"
            await settled(broker)


async def pulled(stub: SliceServiceAsyncStub, queue: bytes) -> wire.PullResponse:
    return await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=queue, messages_max=1)))


async def test_quick_pulls_behind_long_ones_of_their_session_come_in_their_order(tmp_path: Path) -> None:
    """They gave their room back meanwhile, and one that came as the long one was done began before them."""
    sessions, rounds, pulls = 6, 8, 60
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(120):
            stub = SliceServiceStub(channel)
            keys = [f"key {number}" for number in range(1_500)]
            setting = await RawSession.open(stub)
            for number in range(sessions):
                huge, jobs = f"huge {number}", f"jobs {number}"
                await setting.change(declare(huge, jobs), bind(jobs, jobs), bind(huge, *keys[:750]))
                await setting.change(bind(huge, *keys[750:]))
                for _ in range(rounds):
                    await setting.change(*(publish(jobs, b"x") for _ in range(pulls)))

            async def pull_in_order(number: int) -> None:
                huge, jobs = (wire.Pull(queue=f"{name} {number}".encode(), messages_max=1) for name in ("huge", "jobs"))
                for _ in range(rounds):
                    session = await RawSession.open(stub)
                    await session.write(wire.SessionRequest(pull=huge))
                    asked = [await session.write(wire.SessionRequest(pull=jobs)) for _ in range(pulls)]
                    await session.read_until(lambda: all(one in session.answers for one in asked), 60)  # noqa: B023
                    brought = [session.answers[one].pulled.deliveries[0].low for one in asked]
                    assert brought == sorted(brought)
                    session.call.cancel()

            await asyncio.gather(*(pull_in_order(number) for number in range(sessions)))
            assert not broker.pull_lines
            await settled(broker)


async def test_what_is_pulled_comes_before_what_is_pushed_behind_it(tmp_path: Path) -> None:
    """An attach that was sent behind three pulls stood behind the first of them only."""
    async with running(tmp_path, options=few_answers(8)) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            setting = await RawSession.open(SliceServiceStub(channel))
            for queue in (f"q{number}" for number in range(6)):
                await setting.change(declare(queue), bind(queue, queue))
                for _ in range(200):
                    await setting.change(publish(queue, bytes(20_000)))
                session = await RawSession.open(SliceServiceStub(channel), 8 << 20)
                pull = wire.SessionRequest(pull=wire.Pull(queue=queue.encode(), messages_max=50))
                asked = [await session.write(pull) for _ in range(3)]
                await session.attach([queue.encode()], window_messages=50, window_bytes=8 << 20)
                assert [session.answers[one].pulled.deliveries[0].low for one in asked] == [1, 51, 101]
                await session.read_until(lambda: len(session.deliveries) == 50, 30)  # noqa: B023
                assert session.deliveries[0].low == 151
                session.call.cancel()


async def test_what_a_refused_pull_answers_counts_as_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its room was given back before the answer with the error was there, so that no share counted that."""
    held_bytes: list[int] = []
    add = Answers.add

    def noted(
        answers: Answers,
        answer: wire.Answer,
        weight: int,
        reserved: Reservation | None = None,
        on_left: Callable[[], None] | None = None,
    ) -> None:
        add(answers, answer, weight, reserved, on_left)
        held_bytes.append(answers.held_bytes() - answer.ByteSize())

    monkeypatch.setattr(Answers, "add", noted)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        session = await RawSession.open(SliceServiceStub(channel))
        for peek in (False, True):
            with pytest.raises(NoSuchQueue):
                await session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"missing", peek=peek)))
        await until(lambda: broker.answers.share.used_bytes == 0)
    assert held_bytes[0] > 0
    assert held_bytes[0] == held_bytes[1]
