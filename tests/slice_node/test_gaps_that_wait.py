"""A gap is done once the parcel that tells of it has left: if its session ends before, another session is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import PUMP_TURN_HANDLES
from shoal_slice_node.core.read.reading import describe_queue

from .core_driver import acks, bind, configure, declare, drop_if, farewell, publish, purge, unbind
from .nacks_driver import TIMEOUT_MS, NacksDriver

LAST_2 = KeyOptions(capacity_messages=2, policy="drop_oldest")
TTL_MS = 1_000


@pytest.fixture
def core() -> NacksDriver:
    driver = NacksDriver()
    driver.change(declare("q"), configure("k", LAST_2), bind("q", "k"))
    return driver


def attached(core: NacksDriver, messages: int = 1000, queue: str = "q") -> Session:
    session = core.session()
    assert core.attach(session, queue, messages=messages)
    core.pump()
    return session


def told(core: NacksDriver) -> list[tuple[int, int]]:
    """The gaps since the last call."""
    gaps, core.gaps = core.gaps, []
    return [(gap.first, gap.to) for gap in gaps]


def offsets(core: NacksDriver, session: Session) -> list[int]:
    return [offset for offset, _ in core.times(session)]


def closes(core: NacksDriver, session: Session) -> None:
    core.dispatcher.close(session)


def detaches(core: NacksDriver, session: Session) -> None:
    core.dispatcher.detach(session, 1)


def dropped(core: NacksDriver) -> None:
    """Of five messages the first three go."""
    for _ in range(5):
        core.change(publish("k", b"x"))


def expired(core: NacksDriver) -> None:
    core.change(configure("k", KeyOptions()), publish("k", b"x", b"x", b"x", ttl_ms=TTL_MS))
    core.now_ms += 2 * TTL_MS
    core.maintain()
    core.change(publish("k", b"y"), publish("k", b"y"))


@pytest.mark.parametrize("ends", [closes, detaches])
@pytest.mark.parametrize("goes", [dropped, expired])
def test_a_gap_that_waits_for_a_session_which_ends_is_told_to_another(
    core: NacksDriver, goes: Callable[[NacksDriver], None], ends: Callable[[NacksDriver, Session], None]
) -> None:
    goes(core)
    session = attached(core)
    assert next((parcel.is_gap, parcel.low, parcel.to) for parcel in session.waiting.values()) == (True, 1, 4)
    ends(core, session)
    core.settle()
    other = attached(core)
    assert (offsets(core, other), told(core)) == ([4, 5], [(1, 4)])
    core.settle()
    ends(core, other)
    core.settle()
    again = attached(core)
    assert (offsets(core, again), told(core)) == ([4, 5], [])
    core.ack(again, "k", 4, 6)
    core.settle()
    assert describe_queue(core.state, b"q", 10).messages == again.owed == again.attachments[1].messages == 0
    core.check()


def test_a_gap_that_left_is_told_once_though_its_session_ends_before_it_is_noted(core: NacksDriver) -> None:
    dropped(core)
    session = attached(core)
    taken = core.dispatcher.take(session, 1 << 20)
    assert [(gap.first, gap.to) for gap in taken.gaps] == [(1, 4)]
    core.dispatcher.sent(session, taken.cost_bytes)
    core.dispatcher.close(session)
    core.pump()
    other = attached(core)
    assert (offsets(core, other), told(core)) == ([4, 5], [])
    core.check()


@pytest.mark.parametrize("most", [0, 2])
def test_a_gap_goes_to_another_session_when_the_first_does_not_read(core: NacksDriver, most: int) -> None:
    step = wire.Declares(queues=[b"t"])
    options = QueueOptions(ack_timeout_ms=TIMEOUT_MS)
    if most:
        options = QueueOptions(ack_timeout_ms=TIMEOUT_MS, max_deliveries=most, dead_letter=b"dead")
    step.options.CopyFrom(options.to_wire())
    core.change(wire.Step(declares=step), bind("t", "k"))
    dropped(core)
    hung = attached(core, queue="t")
    other = core.session()
    core.attach(other, "t")
    core.wait(TIMEOUT_MS + 200)
    got = offsets(core, other)
    core.dispatcher.close(hung)
    core.settle()
    assert (sorted(got + offsets(core, other)), told(core)) == ([4, 5], [(1, 4)])
    core.check()


def test_what_waits_to_be_sent_and_is_dropped_is_still_given_or_told(core: NacksDriver) -> None:
    slow = attached(core, messages=1)
    core.change(publish("k", b"1"))
    core.change(publish("k", b"2"), publish("k", b"3"))
    puller = core.session()
    assert [one.low for one in core.pull(puller, "q", 10)] == [2, 3] and told(core) == []
    core.dispatcher.close(slow)
    core.dispatcher.close(puller)
    core.settle()
    other = attached(core)
    assert (offsets(core, other), told(core)) == ([2, 3], [(1, 2)])

    core.ack(other, "k", 1, 4)
    core.dispatcher.close(other)
    core.settle()
    slow = attached(core, messages=1)
    core.change(publish("k", b"4"))
    core.change(publish("k", b"5"), publish("k", b"6"))
    assert (offsets(core, slow), told(core)) == ([4], [])
    core.ack(slow, "k", 4, 5)
    assert (offsets(core, slow), told(core)) == ([5], [])
    core.check()


def test_a_gap_that_waits_ends_with_the_backlog(core: NacksDriver) -> None:
    for change in (purge("q"), unbind("q", "k", discard=True)):
        core.change(bind("q", "k"))
        dropped(core)
        session = attached(core)
        core.change(change)
        core.settle()
        offsets(core, session)
        told(core)
        assert session.owed == session.attachments[1].messages == 0
        core.dispatcher.close(session)
        core.settle()
        assert not core.dispatcher.feeds
        core.check()


def test_a_gap_larger_than_done_ranges_may_be_holds_up_no_other_consumer(core: NacksDriver) -> None:
    core.change(configure("k", KeyOptions()))
    core.change_all(publish("k", *[b"x"] * 1000) for _ in range(6))
    core.change(configure("k", LAST_2), publish("k", b"y"), publish("k", b"z"))
    hung = attached(core, messages=1)
    other = attached(core)
    assert offsets(core, other) == [6001, 6002]
    core.change(publish("k", b"a"), publish("k", b"b"))
    core.ack(other, "k", 6001, 6003)
    assert offsets(core, other) == [6003, 6004]
    assert (offsets(core, hung), told(core)) == ([], [(1, 6001)])


def test_gaps_of_many_keys_between_done_ranges_are_told_in_turns(core: NacksDriver) -> None:
    """Ten keys of which every second of 1,000 messages was acked and the others go."""
    keys, last_1000 = (
        [f"key {number}" for number in range(10)],
        KeyOptions(capacity_messages=1000, policy="drop_oldest"),
    )
    core.change(*[configure(key, last_1000) for key in keys], bind("q", *keys))
    core.change(*[publish(key, *[b"x"] * 1000) for key in keys])
    lost = core.session(1 << 26)
    assert core.attach(lost, "q", messages=100_000)
    core.take(lost)
    for key in keys:
        for offset in range(2, 1000, 2):
            core.ack(lost, key, offset, offset + 1)
    core.dispatcher.close(lost)
    core.settle()
    core.change(*[publish(key, *[b"y"] * 1000) for key in keys])
    session = core.session(1 << 26)
    assert core.attach(session, "q", messages=100_000)
    given, before = [], session.owed
    while core.dispatcher.turn():
        given.append(session.owed - before)
        before = session.owed
    assert sum(given) >= 500 * len(keys) and max(given) <= 4 * 500
    assert len(offsets(core, session)) == 1000 * len(keys)
    core.settle()
    core.check()


def test_gaps_are_noted_in_turns_and_not_while_they_are_taken(core: NacksDriver) -> None:
    """The transport may take while a record is applied in part: no stream changes then."""
    queues = [f"q{number}" for number in range(2 * PUMP_TURN_HANDLES)]
    core.declare(queues)
    core.change_all(bind(queue, "t") for queue in queues)
    core.change(publish("t", b"x", ttl_ms=TTL_MS))
    session = core.session(1 << 26)
    for handle, queue in enumerate(queues, 1):
        core.attach(session, queue, handle=handle)
    core.pump()
    core.now_ms += 2 * TTL_MS
    core.dispatcher.registry.tell_time(core.wall_ms)
    taken = core.dispatcher.take(session, 1 << 20)
    assert [len(gap.handles) for gap in taken.gaps] == [len(queues)] and not taken.deliveries
    assert session.owed == len(queues)
    core.dispatcher.acks.gaps_turn(PUMP_TURN_HANDLES)
    assert session.owed == len(queues) - PUMP_TURN_HANDLES
    core.pump()
    assert session.owed == 0 and core.state.counters.acks == 0
    core.dispatcher.sent(session, taken.cost_bytes)
    core.settle()
    core.check()


@pytest.mark.parametrize("goes", [dropped, expired])
def test_a_puller_whose_messages_are_gone_is_forgotten(goes: Callable[[NacksDriver], None]) -> None:
    core = NacksDriver()
    core.change(declare("q", expires_after_s=60), declare("reader"), bind("q", "k"), bind("reader", "room"))
    core.change(configure("k", LAST_2), farewell("q", key="room", body=b"bye", after_s=5))
    core.change(publish("k", b"1", ttl_ms=TTL_MS))
    puller = core.session()  # As the one that all unary calls share, it never ends.
    assert [one.low for one in core.pull(puller, "q", 1, lease_ms=3_600_000)] == [1]
    goes(core)
    session = attached(core)
    got = offsets(core, session)
    core.ack(session, "k", got[0], got[-1] + 1)
    core.dispatcher.close(session)
    core.settle()
    assert puller.pullers, "it has the message until its lease is over"
    core.wait(3_600_000)
    core.settle()
    assert not core.dispatcher.feeds and not puller.pullers
    core.wait(6_000)
    assert [body for _, _, body in core.take(attached(core, queue="reader"))] == [b"bye"]
    assert not core.change(drop_if("q", unused=True)).steps[0].refusals
    core.check()


def test_an_ack_in_a_change_of_a_queue_that_is_not_consumed_keeps_the_gap(core: NacksDriver) -> None:
    dropped(core)
    core.change(acks(("q", "k", 5, 6)))
    core.check()
    session = attached(core)
    assert (offsets(core, session), told(core)) == ([4], [(1, 4)])
    core.ack(session, "k", 4, 5)
    core.settle()
    assert describe_queue(core.state, b"q", 10).messages == 0
    core.check()
