"""Quick reads, middling and long ones: which they are, and who waits for whom."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    ADMITTED_AT_ONCE_MAX,
    LARGE_ANSWER_BYTES,
)
from shoal_slice_node.adapters.requests import way_to_read
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import PULL_ROWS_PER_STEP, QUICK_STEPS_MAX, SIZED_QUEUES_MAX
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.turns import Source, Work, finish
from tests.fuzz.small_limits import patched

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare, every_second, publish, with_done
from .long_reads import BINDINGS as LARGE_BINDINGS
from .long_reads import LONG, few_answers, filled, read, room_for, settled, until
from .raw_session import RawSession


@pytest.mark.parametrize("door", ["session", "unary"])
async def test_a_pull_and_looks_of_a_middling_queue_wait_for_no_looks_at_large_ones(tmp_path: Path, door: str) -> None:
    """None was answered in 20 s beside 30 clients that peeked at large queues."""
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            stub, room = SliceServiceStub(channel), broker.answers
            await filled(stub)
            session = await RawSession.open(stub)
            await session.change(declare("middling", "some"), bind("some", *(f"key {number}" for number in range(600))))
            for start in (0, 775):
                await session.change(bind("middling", *(f"key {number}" for number in range(start, start + 775))))
            many = [f"one of many {number}" for number in range(600)]
            await session.change(declare(*many))
            for start in (0, 300):
                await session.change(*(bind(name, "key 1") for name in many[start : start + 300]))
            await session.change(publish("key 1", b"x"))
            held: list[Reservation] = []
            for source in LONG:
                room.reserve(held.append, source, length=Length.LONG)
            assert len(held) < len(LONG)
            with patch.object(AnswerRoom, "others_wait", lambda _: True):
                for queue, messages, peek in ((b"some", 1, False), (b"some", 10_000, True), (b"middling", 1, True)):
                    pull = wire.Pull(queue=queue, messages_max=messages, peek=peek)
                    await read(stub, door, wire.SessionRequest(pull=pull))
                for queues in ([b"middling"], [name.encode() for name in many]):
                    describe = wire.Describe(queues=queues, bindings=True)
                    await read(stub, door, wire.SessionRequest(describe=describe))
            while held:
                held.pop().release()
            await settled(broker)


@pytest.mark.parametrize("bindings", [1_000, LARGE_BINDINGS])
@pytest.mark.parametrize("room", [True, False])
async def test_pulls_of_a_session_come_in_their_order_though_the_first_is_put_off(
    tmp_path: Path, bindings: int, room: bool
) -> None:
    """The second one, which asks for little, would take the messages that come first. Where there was `room` at once
    for the first as a longer read, it came behind the second in the session's work."""
    async with running(tmp_path, options=few_answers(8)) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            session = await RawSession.open(SliceServiceStub(channel))
            await session.change(declare("q"), declare("other"), bind("other", "k"))
            for start in range(0, bindings, 1_000):
                names = [f"key {number}" for number in range(start, min(bindings, start + 1_000))]
                await session.change(bind("q", *names))
            await session.change(bind("q", "k"))
            for _ in range(6):
                await session.change(publish("k", *[b"x"] * 100))
            held: list[Reservation] = []
            for source in () if room else LONG:
                for length in (Length.LONG, Length.MIDDLING):
                    broker.answers.reserve(held.append, source, length=length)
            pulls = [wire.Pull(queue=b"q", messages_max=count) for count in (500, 10, 5)]
            asked = [await session.write(wire.SessionRequest(pull=pull)) for pull in pulls]
            if not room:
                other = wire.Pull(queue=b"other", messages_max=1)
                assert (await session.ask(wire.SessionRequest(pull=other))).pulled.deliveries, "of another queue"
                assert not set(asked) & set(session.answers)
            while held:
                held.pop().release()
            await session.read_until(lambda: all(number in session.answers for number in asked), 30)
            brought = [session.answers[number].pulled.deliveries for number in asked]
            assert [one[0].low for one in brought] == [1, 501, 511]
            assert not broker.pull_lines
            await settled(broker)


async def test_a_session_that_ends_leaves_nothing_of_pulls_that_were_put_off(tmp_path: Path) -> None:
    async with running(tmp_path, options=few_answers(8)) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            stub = SliceServiceStub(channel)
            await filled(stub)
            session = await RawSession.open(stub)
            held: list[Reservation] = []
            for source in LONG:
                broker.answers.reserve(held.append, source, length=Length.LONG)
            for _ in range(3):
                await session.write(wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1)))
            await until(lambda: bool(broker.pull_lines))
            session.call.cancel()
            await until(lambda: not broker.pull_lines)
            while held:
                held.pop().release()
            await settled(broker)
            assert not broker.pull_lines


@pytest.mark.parametrize("door", ["session", "unary"])
async def test_a_pull_of_much_waits_for_no_looks_at_large_queues(tmp_path: Path, door: str) -> None:
    """Where it counted as a long read, one in 36 s was answered beside 30 clients that looked at large queues, and what
    its connection asked besides stood behind it."""
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            stub, room = SliceServiceStub(channel), broker.answers
            session = await RawSession.open(stub)
            await session.change(declare("q"), bind("q", "k"))
            for _ in range(10):
                await session.change(*(publish("k", b"x") for _ in range(100)))
            held: list[Reservation] = []
            for source in LONG:
                room.reserve(held.append, source, length=Length.LONG)
            with patch.object(AnswerRoom, "others_wait", lambda _: True):
                pull = wire.Pull(queue=b"q", messages_max=1_000)
                if door == "unary":
                    found = (await stub.Pull(wire.PullRequest(pull=pull))).deliveries
                else:
                    found = (await session.ask(wire.SessionRequest(pull=pull))).pulled.deliveries
                assert len(found) == PULL_ROWS_PER_STEP
            while held:
                held.pop().release()
            await settled(broker)


def test_the_queues_of_a_describe_count_together() -> None:
    core = CoreDriver()
    names = [f"q{number}".encode() for number in range(2 * SIZED_QUEUES_MAX)]
    core.change(*(declare(name.decode()) for name in names))
    for name in names:
        core.change(bind(name.decode(), *(f"key {number}" for number in range(200))))

    def length(*names: bytes) -> Length:
        return requests.describe(core.node, wire.Describe(queues=names)).length()

    assert length(b"none", *names[:2]) is Length.QUICK
    assert length(*names[:3]) is length(*names[:8]) is Length.MIDDLING
    assert length(*names[:9]) is Length.LONG
    others = [f"none {number}".encode() for number in range(SIZED_QUEUES_MAX)]
    assert length(*others, *names) is Length.QUICK, "only so many are looked up"


@pytest.mark.parametrize(
    ("bindings", "ranges", "length"),
    [(100, 8, Length.QUICK), (100, 80, Length.MIDDLING), (100, 800, Length.LONG), (390, 16, Length.MIDDLING)],
)
def test_done_ranges_count_where_it_is_told_whether_a_pull_takes_long(
    bindings: int, ranges: int, length: Length
) -> None:
    """Those of 100 bindings with 2,000 each were loaded in the room of quick reads, for 30 to 100 ms."""
    core, keys = CoreDriver(), [f"k{number}" for number in range(bindings)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, *[b""] * (2 * ranges + 1)) for key in keys))
    with_done(core, "q", keys, every_second(ranges))
    session = core.session()

    def pull() -> Read:
        return requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=1), 0, 1_000)

    assert pull().length() is length
    assert requests.describe(core.node, wire.Describe(queues=[b"q"])).length() is length
    answer, _ = pulled(core, session, 1, "whole")
    assert answer is not None and len(answer.pulled.deliveries) == 1
    core.pump()
    assert pull().length() is Length.QUICK, "it is loaded"


def pulled(
    core: CoreDriver, session: Session, messages: int, begin: str = "quick", others_wait: bool = False
) -> tuple[wire.Answer | None, int]:
    """Pulls from queue `q`. Returns the answer, and how many steps it took; those that make the answer of what was
    taken do not count."""
    asked = wire.Pull(queue=b"q", messages_max=messages)
    pull = requests.pull(core.node, session, asked, 0, 1_000, None, lambda: others_wait)
    core.pump()
    answers: list[wire.Answer | None] = []
    work = pull.whole() if begin == "whole" else pull.within(QUICK_STEPS_MAX)
    core.node.add_work(Source("connection", 1), work, lambda answer, error: answers.append(answer))
    steps = 0
    while not answers:
        core.node.turn()
        steps += 1
    (answer,) = answers
    made_of = 0 if answer is None else len(answer.pulled.deliveries) + len(answer.pulled.gaps)
    return answer, steps - made_of // PULL_ROWS_PER_STEP


@pytest.mark.parametrize("begin", ["quick", "whole"])
@pytest.mark.parametrize("small", [0, 32])
def test_a_pull_ends_after_few_steps_with_what_it_has(begin: str, small: int) -> None:
    """Each of thousands of messages takes 77 ms of a processor, and 30 clients with one at a time made others wait for
    3 s. Such a pull was to be put off, and was not where the first keys had one message each."""
    core = CoreDriver()
    keys = [f"key {number}" for number in range(40)]
    core.change(declare("q"), bind("q", *keys))
    for key in keys[:small]:
        core.change(publish(key, b"x"))
    for _ in range(700):
        core.change(*(publish(key, b"x") for key in keys[32:]))
    session = core.session()
    answer, steps = pulled(core, session, 10_000, begin)
    assert answer is not None and steps <= QUICK_STEPS_MAX + 1
    taken = len(answer.pulled.deliveries)
    assert QUICK_STEPS_MAX * PULL_ROWS_PER_STEP // 2 < taken <= QUICK_STEPS_MAX * PULL_ROWS_PER_STEP
    for others_wait in (True, True, False, False, False):
        answer, steps = pulled(core, session, 10_000, begin, others_wait)
        assert answer is not None and steps <= QUICK_STEPS_MAX + 1
        assert not others_wait or len(answer.pulled.deliveries) <= PULL_ROWS_PER_STEP
        taken += len(answer.pulled.deliveries)
    assert taken == small + 8 * 700
    core.check()


def test_a_pull_ends_after_few_steps_with_the_gaps_it_has() -> None:
    """A pull of one message that passed 20,000 expired ones had 104 steps, 0.1 to 0.24 s, as a quick read."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"stays"))
    short = wire.Publishes(keys=[b"k"] * 500, chunks=[encode_chunk([b"x"])] * 500, ttl_ms=1)
    for _ in range(20):
        core.change(wire.Step(publishes=short))
    core.change(publish("k", b"last"))
    core.now_ms += 1_000
    core.dispatcher.registry.tell_time(core.wall_ms)
    session, bodies, answers = core.session(), list[int](), 0
    while len(bodies) < 2:
        answer, steps = pulled(core, session, 1)
        assert answer is not None and steps <= QUICK_STEPS_MAX + 1
        bodies += [one.low for one in answer.pulled.deliveries]
        answers += 1
    assert bodies == [1, 10_002] and answers > 2


@pytest.mark.parametrize("bytes_max", [0, 1, 100, 1_000])
def test_a_brief_pull_may_exceed_its_bytes_by_the_last_chunk(bytes_max: int) -> None:
    """One that asked for less than some 400 waited for room for large answers."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"), publish("k", bytes(40_000)))
    pull = requests.pull(core.node, core.session(), wire.Pull(queue=b"q", bytes_max=bytes_max), 0, 1_000)
    answers = [finish(core.pumped(pull.brief(32 << 10))) for _ in range(2)]
    assert answers[0] is not None and [one.low for one in answers[0].pulled.deliveries] == [1]
    assert answers[1] is None, "the next one is not brief"


def test_a_pull_that_finds_nothing_soon_is_put_off_and_has_taken_nothing() -> None:
    with patched({"PUMP_TURN_LOOKS": 1, "DONE_RANGES_MAX": 1}):
        core = CoreDriver()
        keys = [f"key {number}" for number in range(2 * QUICK_STEPS_MAX)]
        core.change(declare("q"), bind("q", *keys))
        for body in (b"x", b"y"):
            core.change(*(publish(key, body) for key in keys))
        holder = core.session()
        core.attach(holder, "q", messages=len(keys))
        assert len(core.take(holder)) == len(keys), "one of each"
        core.change(bind("q", "last"), publish("last", b"here"))
        session = core.session()
        answer, _ = pulled(core, session, 10)
        assert answer is None and not session.pullers and not session.owed
        answer, _ = pulled(core, session, 10, "whole")
        assert answer is not None and len(answer.pulled.deliveries) == 1


async def test_few_reads_begin_in_one_step() -> None:
    """Each that waited was looked at, found to be long, and put off as room was let go: 4,497 in a step of 1.7 s."""
    room = room_for(2)
    held: list[Reservation] = []
    for source in range(2):
        room.reserve(held.append, f"holds {source}")
    begun = 0

    def put_off(reservation: Reservation) -> None:
        nonlocal begun
        begun += 1
        reservation.release()

    for source in range(1_000):
        room.reserve(put_off, source)
    held[0].release()
    assert begun == ADMITTED_AT_ONCE_MAX
    held[1].release()
    assert begun == ADMITTED_AT_ONCE_MAX, "room that is let go meanwhile begins no more in this step"
    while begun < 1_000:
        before = begun
        await asyncio.sleep(0)
        assert begun - before <= ADMITTED_AT_ONCE_MAX
    await asyncio.sleep(0)
    room.reserve(held.append, "later")
    assert len(held) == 3 and not room.waiting


def test_a_read_of_which_the_length_cannot_be_told_is_begun_and_fails_alone() -> None:
    """A defect in a queue's row was met where another's room was let go: that room was lost, and others waited."""

    def length() -> Length:
        raise ValueError("the row is cut off")

    def work() -> Work[wire.Answer]:
        yield from ()
        return wire.Answer()

    read = Read(work, lambda _: work(), lambda _: work(), length, may_be_tried=False)
    reservation = Reservation(room_for(2), "source", LARGE_ANSWER_BYTES)
    broker = cast(Broker, None)  # Nothing of it is looked at.
    begin, _ = way_to_read(broker, reservation, read)
    assert begin is not None and finish(begin()) == wire.Answer()


@pytest.mark.parametrize(("answers", "at_once"), [(2, 1), (3, 1), (8, 1), (40, 2)])
def test_middling_reads_wait_for_no_long_ones_and_leave_room_to_the_quick_ones(answers: int, at_once: int) -> None:
    """A pull of a queue of 600 bindings stood behind 30 looks at queues of 100,000, a second each."""
    room = room_for(answers)
    held: dict[Length, list[Reservation]] = {length: [] for length in Length}
    for source in LONG * 2:
        room.reserve(held[Length.LONG].append, source, length=Length.LONG)
    for number in range(10):
        room.reserve(held[Length.MIDDLING].append, f"middling {number}", length=Length.MIDDLING)
    long = len(held[Length.LONG])
    assert len(held[Length.MIDDLING]) == at_once and long < 2 * len(LONG)
    quick = answers - long - at_once
    for number in range(quick + 2):
        room.reserve(held[Length.QUICK].append, f"quick {number}")
    assert len(held[Length.QUICK]) == quick
    held[Length.MIDDLING][0].release()
    assert len(held[Length.QUICK]) == quick + 1, "they come first"
    held[Length.QUICK][-1].release()
    held[Length.QUICK][-1].release()
    assert len(held[Length.MIDDLING]) == at_once + 1 and len(held[Length.LONG]) == long


@pytest.mark.parametrize("peek", [False, True])
async def test_reads_behind_their_sessions_long_pull_keep_no_room_meanwhile(tmp_path: Path, peek: bool) -> None:
    """They had taken the few rooms of quick reads, and 30 clients that did so made others wait for 1 to 2.5 s."""
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            stub, room = SliceServiceStub(channel), broker.answers
            await filled(stub)
            session = await RawSession.open(stub)
            await session.write(wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1)))
            await until(lambda: room._works[Length.LONG])
            quick = wire.SessionRequest(pull=wire.Pull(queue=b"small", messages_max=1, peek=peek))
            asked = [await session.write(quick) for _ in range(5)]
            reading = asyncio.create_task(session.read_until(lambda: all(one in session.answers for one in asked), 30))
            while broker.long_work:
                assert not room._works[Length.QUICK] and room.share.used_bytes <= LARGE_ANSWER_BYTES
                await asyncio.sleep(0)
            await reading
            bodies = [len(session.answers[one].pulled.deliveries) for one in asked]
            assert bodies == ([1] * 5 if peek else [1, 0, 0, 0, 0])
            await settled(broker)
            assert not broker.long_work and not broker.pull_lines
