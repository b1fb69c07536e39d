"""A queue's lives: incarnations at its home, parts that follow them, drops that mean one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict, Malformed, NoSuchQueue, ShoalError, from_wire
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ATTACHED_PER_STEP
from shoal_slice_node.core.node import requests, settling
from shoal_slice_node.core.turns import Source, finish

from .brokers import connected, running
from .core_driver import PARTITIONS, CoreDriver, bind, declare, drop, publish
from .nacks_driver import NacksDriver
from .raw_session import RawSession

HERE = next(f"q{n}" for n in range(99) if partition_of(direct_key(b"q%d" % n), PARTITIONS) == 0)
"""A queue whose home is a slice that owns partition 0."""


def elsewhere() -> CoreDriver:
    """A slice that owns every partition but that of the queue's home."""
    core = CoreDriver()
    core.record(Kind.OWNERSHIP, encode_ownership(2, b"\x00" + b"\x01" * (PARTITIONS - 1)))
    return core


def part(queue: str, incarnation: int, expires_after_s: int = 0) -> wire.Step:
    step = declare(queue, expires_after_s=expires_after_s)
    step.declares.incarnations.append(incarnation)
    return step


def drop_of(queue: str, incarnation: int) -> wire.Step:
    return wire.Step(drops=wire.Drops(queues=[queue.encode()], incarnations=[incarnation]))


def incarnation(core: CoreDriver, *steps: wire.Step) -> int:
    """That a declare, the last of the steps, is answered with."""
    step = core.change(*steps).steps[-1]
    assert not step.refusals
    return step.offsets[0]


def refused(core: CoreDriver, step: wire.Step) -> ShoalError:
    outcome = core.change(step).steps[0]
    return from_wire(outcome.refusals[0].error)


def bound(core: CoreDriver, queue: str) -> int:
    found = core.state.load_queue(queue.encode())
    return -1 if found is None else found.bindings


KEY = next(f"k{n}" for n in range(99) if partition_of(b"k%d" % n, PARTITIONS) != 0)


def test_a_home_gives_each_life_a_number_that_grows() -> None:
    core = CoreDriver()
    first = incarnation(core, declare(HERE))
    assert first and incarnation(core, declare(HERE)) == first, "as long as it lives"
    second = incarnation(core, drop(HERE), declare(HERE))
    assert second > first
    core.state.begin_epoch(9)
    assert incarnation(core, drop(HERE), declare(HERE)) > second


def test_a_part_takes_the_life_that_its_home_gave_and_follows_to_the_next() -> None:
    core = elsewhere()
    assert incarnation(core, part(HERE, 7)) == 7
    core.change(bind(HERE, KEY), publish(KEY, b"for the first life"))
    assert incarnation(core, part(HERE, 7)) == 7 and bound(core, HERE) == 1
    assert incarnation(core, part(HERE, 9)) == 9 and bound(core, HERE) == 0, "another queue: nothing is left of the old"
    core.settle()
    core.check()


def test_a_late_declare_of_an_older_life_brings_nothing_back() -> None:
    core = elsewhere()
    core.change(part(HERE, 9), bind(HERE, KEY))
    error = refused(core, part(HERE, 7))
    assert isinstance(error, NoSuchQueue) and error.value == 7 and bound(core, HERE) == 1
    home = CoreDriver()
    old = incarnation(home, declare(HERE))
    home.change(drop(HERE))
    assert isinstance(refused(home, part(HERE, old)), NoSuchQueue), "the home knows that it is over"
    assert bound(home, HERE) == -1


def test_a_part_without_a_life_gets_one() -> None:
    """Made by an import, or by a client that does not say."""
    core = elsewhere()
    assert incarnation(core, declare(HERE)) == 0
    core.change(bind(HERE, KEY))
    assert incarnation(core, part(HERE, 7)) == 7 and bound(core, HERE) == 1


def test_options_of_another_queue_are_a_conflict_in_its_own_life_only() -> None:
    core = elsewhere()
    core.change(part(HERE, 7, expires_after_s=60))
    assert isinstance(refused(core, part(HERE, 7)), Conflict)
    assert incarnation(core, part(HERE, 9)) == 9


def test_a_drop_ends_the_life_that_it_means_and_no_other() -> None:
    core = elsewhere()
    core.change(part(HERE, 9), bind(HERE, KEY))
    assert isinstance(refused(core, drop_of(HERE, 7)), NoSuchQueue) and bound(core, HERE) == 1
    core.change(drop_of(HERE, 9))
    assert bound(core, HERE) == -1
    core.change(declare(HERE))
    core.change(drop_of(HERE, 9))
    assert bound(core, HERE) == -1, "a part of no known life goes with any"
    core.change(part(HERE, 7), bind(HERE, KEY))
    error = refused(core, drop_of(HERE, 9))
    assert isinstance(error, NoSuchQueue) and error.value == 9, "it tells that another life is here"
    assert bound(core, HERE) == 1


def test_sessions_are_told_that_a_handle_begins_anew() -> None:
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", KEY))
    first = core.dispatcher.attach(session, b"q", 5, 100, 1 << 20).life
    core.change(publish(KEY, b"of the first life"))
    assert len(core.take(session)) == 1 and not session.resets
    core.change(drop("q"), declare("q"), bind("q", KEY), publish(KEY, b"of the second"))
    assert list(session.resets) == [5] and core.dispatcher.dirty
    assert [body for _, _, body in core.take(session)] == [b"of the second"]
    assert core.dispatcher.attach(session, b"q", 5, 100, 1 << 20).life > first
    core.change(drop("q"))
    assert session.awaited == {5: b"q"}
    core.change(declare("q"))
    assert not session.awaited, "attached again as soon as it is there"


def test_a_session_is_told_the_life_of_a_part_that_came_after_its_attach() -> None:
    """As an answer to an attach tells it: a client that does not know it takes it for another life later."""
    core = CoreDriver()
    session, later = core.session(), core.session()
    assert not core.attach(session, HERE, 1), "there is no part yet"
    core.change(declare(HERE))
    core.pump()
    told = session.take_new_parts(10)
    life = core.dispatcher.attach(later, HERE.encode(), 1, 10, 100).life
    assert life and {handle: part.life for handle, part in told.items()} == {1: life}
    core.change(drop(HERE), declare(HERE))
    core.pump()
    second = session.take_new_parts(10)[1].life
    assert second not in (0, life) and list(session.resets) == [1]
    assert session.new_parts == {}


def test_an_attach_is_answered_with_the_lives_that_are_there_at_its_end() -> None:
    """Queues that are dropped, declared anew, or come while many are attached in turns."""
    core = CoreDriver()
    names = [f"n{number}" for number in range(3 * ATTACHED_PER_STEP)]
    core.declare(names[:-1])
    session = core.session()
    request = wire.Attach(queues=[name.encode() for name in names], handles=range(1, len(names) + 1))
    work = requests.attach(core.node, session, request)()
    next(work)
    core.change(drop(names[0], names[1]), declare(names[0], names[-1]))
    core.pump()
    answer = finish(work).attached
    here = [core.tables.queue_by_name.get(name.encode()) for name in names]
    assert list(answer.lives) == [0 if found is None else int.from_bytes(found, "big") for found in here]
    assert list(answer.absent) == [2]


EARLIEST = bind("q", "k", start=wire.START_EARLIEST)


def second_life(core: CoreDriver, later: bool) -> Session:
    """A session that has handle 1 of a queue in its second life, in which it was given the same offset again, 1. The
    queue may have been away for a while. Another queue, of handle 2, keeps the message."""
    core.change(declare("q"), declare("r"), bind("q", "k"), bind("r", "k"), publish("k", b"1"))
    session = core.session()
    assert core.attach(session, "q") and core.attach(session, "r", 2)
    assert [offset for _, offset, _ in core.take(session)] == [1]
    if later:
        core.change(drop("q"))
        core.change(declare("q"), EARLIEST)
    else:
        core.change(drop("q"), declare("q"), EARLIEST)
    assert session.resets.take(10) == [1]
    assert [offset for _, offset, _ in core.take(session)] == [1]
    return session


def acked(core: CoreDriver, session: Session, resets_seen: int | None, *handles: int) -> list[int]:
    """Sends a frame of acks of offset 1. Returns the places that are told as unacked."""
    frame = wire.Acks(acks=[wire.Ack(key=b"k", low=1, to=2, handles=handles)], resets_seen=resets_seen)
    done: list[ShoalError | None] = []
    unacked: list[int] = []
    source, seen = Source("test", session.number), settling.resets_seen(frame)
    settling.take_acks(core.node, source, session, list(frame.acks), done.append, False, unacked, seen)
    assert done == [None]
    return unacked


def backlog(core: CoreDriver) -> list[int]:
    """How many messages each of the queues still has to ack."""
    core.flush()
    request = wire.Describe(queues=[b"q", b"r"])
    description = finish(requests.describe(core.node, request).whole()).description
    return [queue.messages for queue in description.queues]


@pytest.mark.parametrize("later", [False, True])
def test_an_ack_that_was_made_before_its_client_knew_of_a_life_ends_nothing_of_it(later: bool) -> None:
    """It was on its way while the queue was dropped, declared anew and bound: handle, key and offset are the same."""
    core = CoreDriver()
    session = second_life(core, later)
    assert acked(core, session, 0, 1, 2) == [], "the message is gone with its life"
    assert backlog(core) == [1, 0], "the queue that lives on is acked"
    assert acked(core, session, 1, 1) == []
    assert backlog(core) == [0, 0]


def test_an_ack_that_does_not_say_what_its_client_saw_counts_for_any_life() -> None:
    core = CoreDriver()
    session = second_life(core, later=False)
    acked(core, session, None, 1)
    assert backlog(core) == [0, 1]


def test_an_ack_behind_an_attach_counts_whatever_its_client_saw_of_other_handles() -> None:
    """The client asks for the attach itself: what it sends later is for this life."""
    core = CoreDriver()
    session = second_life(core, later=False)
    core.change(drop("r"), declare("r"), bind("r", "k", start=wire.START_EARLIEST))
    core.dispatcher.detach(session, 1)
    assert core.attach(session, "q")
    core.take(session)
    assert acked(core, session, 0, 1, 2) == [], "of the other one, the message is gone with its life"
    assert backlog(core) == [0, 1]


def test_a_nack_that_was_made_before_its_client_knew_of_a_life_brings_back_nothing_of_it() -> None:
    core = NacksDriver()
    session = second_life(core, later=False)
    ack = wire.Ack(key=b"k", low=1, to=2, handles=[1])
    core.frame(session, wire.Nacks(messages=[ack], resets_seen=0))
    core.frame(session, wire.Nacks(messages=[ack], resets_seen=0, unseen=True, number=7))
    assert core.times(session) == []
    core.change(publish("k", b"2"))
    assert core.deliveries(session)[0].nacks_taken == 7, "it was looked at"
    core.frame(session, wire.Nacks(messages=[ack], resets_seen=1))
    assert core.times(session) == [(1, 1)]


def test_a_handle_that_was_reset_several_times_before_it_was_told_is_told_and_counted_once() -> None:
    core = CoreDriver()
    session = second_life(core, later=False)
    for _ in range(3):
        core.change(drop("q"), declare("q"), EARLIEST)
    core.change(drop("r"), declare("r"))
    assert session.resets.take(10) == [1, 2]
    assert [offset for _, offset, _ in core.take(session)] == [1]
    acked(core, session, 1, 1)
    assert backlog(core) == [1, 0]
    acked(core, session, 3, 1)
    assert backlog(core) == [0, 0]


async def test_all_that_is_told_of_a_life_comes_behind_the_word_that_the_one_before_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a response has no room for all resets, new parts were told before them."""
    monkeypatch.setattr("shoal_slice_node.adapters.session_work.RESETS_PER_RESPONSE_MAX", 2)
    names = [f"q{number}" for number in range(7)]
    renewed = [step for name in names for step in (declare(name), bind(name, "k", start=wire.START_EARLIEST))]
    told: set[int] = set()
    parts: list[int] = []
    given: list[int] = []
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(60):
        session = await RawSession.open(SliceServiceStub(channel))
        await session.change(declare("r"), bind("r", "k"), *renewed)
        await session.attach([name.encode() for name in names])
        change = wire.Change(steps=[drop(*names), *renewed, publish("k", b"1")]).SerializeToString()
        await session.write(wire.SessionRequest(change=change))
        while len(given) < len(names):
            response = await session.call.read()
            assert isinstance(response, wire.SessionResponse)
            told.update(response.resets)
            parts += response.ack_timeouts.handles
            given += [handle for delivery in response.deliveries for handle in delivery.handles]
            assert told.issuperset(parts) and told.issuperset(given)
    assert sorted(parts) == sorted(given) == sorted(told) == list(range(1, 8))


def pulled(core: CoreDriver, session: Session) -> tuple[list[int], int]:
    """The offsets that a pull of q gives, and the life that its answer tells."""
    answer = finish(requests.pull(core.node, session, wire.Pull(queue=b"q"), 0, 1000).whole()).pulled
    return [offset for one in answer.deliveries for offset in range(one.low, one.to)], answer.life


def second_life_pulled(core: CoreDriver) -> tuple[Session, int, int]:
    """A session that pulled the same offset, 1, of two lives of a queue; and the lives. Another queue keeps it."""
    core.change(declare("q"), declare("r"), bind("q", "k"), bind("r", "k"), publish("k", b"1"))
    session = core.session()
    first, former = pulled(core, session)
    core.change(drop("q"), declare("q"), EARLIEST)
    again, life = pulled(core, session)
    assert first == again == [1] and former and life and former != life
    return session, former, life


def by_name(*lives: int) -> wire.Ack:
    return wire.Ack(key=b"k", low=1, to=2, queues=[b"q"] * max(1, len(lives)), lives=lives)


def acked_by_name(core: CoreDriver, session: Session, *lives: int) -> list[int]:
    """Acks offset 1 of q in these lives; none: it does not say. Returns the places that are told as unacked."""
    done: list[ShoalError | None] = []
    unacked: list[int] = []
    source = Source("test", session.number)
    settling.take_acks(core.node, source, session, [by_name(*lives)], done.append, False, unacked)
    assert len(done) == 1
    if done[0] is not None:
        raise done[0]
    return unacked


def test_an_ack_of_what_was_pulled_of_an_earlier_life_ends_nothing_of_the_next() -> None:
    core = CoreDriver()
    session, former, life = second_life_pulled(core)
    assert acked_by_name(core, session, former) == [], "the message is gone with its life"
    assert backlog(core) == [1, 1]
    assert acked_by_name(core, session, former, life) == []
    assert backlog(core) == [0, 1]


@pytest.mark.parametrize("lives", [(), (0,)])
def test_an_ack_by_name_that_does_not_say_of_which_life_counts_for_any(lives: tuple[int, ...]) -> None:
    core = CoreDriver()
    session, *_ = second_life_pulled(core)
    acked_by_name(core, session, *lives)
    assert backlog(core) == [0, 1]


def test_a_nack_of_what_was_pulled_of_an_earlier_life_brings_back_nothing_of_the_next() -> None:
    core = NacksDriver()
    session, former, life = second_life_pulled(core)
    assert core.attach(session, "r", 2)
    assert [offset for offset, _ in core.times(session)] == [1]
    core.frame(session, wire.Nacks(messages=[by_name(former)], unseen=True, number=7))
    assert pulled(core, session) == ([], life)
    core.change(publish("k", b"2"))
    assert core.deliveries(session)[0].nacks_taken == 7, "it was looked at"
    core.frame(session, wire.Nacks(messages=[by_name(life)]))
    assert pulled(core, session) == ([1, 2], life)


def test_unary_acks_and_nacks_may_say_of_which_life_they_are_too() -> None:
    core = NacksDriver()
    session, former, life = second_life_pulled(core)
    core.frame(session, wire.Nacks(messages=[by_name(former)]), everyone=True)
    assert pulled(core, session) == ([], life)
    for named in former, life:
        source, answered = Source("unary", 1), list[ShoalError | None]()
        settling.take_acks(core.node, source, core.session(), [by_name(named)], answered.append, everyone=True)
        assert answered == [None]
        assert backlog(core) == ([1, 1] if named == former else [0, 1])


def test_lives_that_are_not_one_for_each_queue_are_refused_and_nothing_is_acked() -> None:
    core = CoreDriver()
    session, _, life = second_life_pulled(core)
    good, bad = by_name(life), wire.Ack(key=b"k", low=1, to=2, queues=[b"q"], lives=[life, life])
    for frame in [good, bad], [wire.Ack(key=b"k", low=1, to=2, handles=[1], lives=[life])]:
        done: list[ShoalError | None] = []
        settling.take_acks(core.node, Source("test", session.number), session, frame, done.append, False)
        assert isinstance(done[0], Malformed) and done[0].subject == "lives"
    assert backlog(core) == [1, 1]


def test_an_ack_in_a_transaction_of_an_earlier_life_is_refused() -> None:
    core = CoreDriver()
    _, former, life = second_life_pulled(core)
    steps = [
        wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[1], tos=[2], lives=[one]))
        for one in (former, life)
    ]
    (of_former,) = core.change(steps[0]).steps
    assert [one.error.subject for one in of_former.refusals] == ["q"]
    assert isinstance(from_wire(of_former.refusals[0].error), Conflict)
    assert backlog(core) == [1, 1]
    (of_life,) = core.change(steps[1]).steps
    assert not of_life.refusals and backlog(core) == [0, 1]
