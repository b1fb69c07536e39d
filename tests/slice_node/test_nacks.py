"""Competing consumers: fair by window; what a session gives back, or does not ack in time, others get, never early."""

from __future__ import annotations

import pytest

from shoal_contract.errors import InvalidName, OutOfRange, ResourceExhausted, TooLarge
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import returns, shares, streams
from shoal_slice_node.core.limits import ACKED_CONSUMERS_PER_FRAME_MAX

from .core_driver import acks, bind, declare, drop, publish, purge, unbind
from .nacks_driver import TIMEOUT_MS, NacksDriver, attached


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"))
    return core


def test_sessions_compete_fairly_by_their_windows(core: NacksDriver) -> None:
    sessions = [attached(core, messages=window) for window in (10, 10, 10, 40)]
    for _ in range(70):
        core.change(publish("k", b"x"))
    got = [core.take(session) for session in sessions]
    assert [len(one) for one in got] == [10, 10, 10, 40]
    assert len({offset for one in got for _, offset, _ in one}) == 70
    core.change(*[publish("k", b"y")] * 6)
    assert not any(core.take(session) for session in sessions)
    for session, one in zip(sessions, got, strict=True):
        core.ack(session, "k", one[0][1], one[0][1] + 1)
    again = [len(core.take(session)) for session in sessions]
    assert again == [1, 1, 1, 1]
    core.check()


def test_messages_in_turn_go_to_all_that_have_room(core: NacksDriver) -> None:
    sessions = [attached(core) for _ in range(4)]
    for _ in range(40):
        core.change(publish("k", b"x"))
    assert [len(core.take(session)) for session in sessions] == [10, 10, 10, 10]


def test_what_is_nacked_is_given_again_at_once_and_says_so(core: NacksDriver) -> None:
    one, other = attached(core, messages=3), attached(core, messages=3)
    core.change(publish("k", b"a", b"b", b"c"))
    assert core.times(one) == [(1, 0), (2, 0), (3, 0)] and core.times(other) == []
    core.nack(one, 2, 3)
    assert core.times(one) + core.times(other) == [(2, 1)]
    core.nack(one, 0, 10)
    core.nack(other, 0, 10)
    assert sorted(core.times(one) + core.times(other)) == [(1, 1), (2, 2), (3, 1)]
    core.check_served()


def test_a_nack_frees_the_window(core: NacksDriver) -> None:
    session = attached(core, messages=2)
    core.change(publish("k", b"a"), publish("k", b"b"), publish("k", b"c"))
    assert core.times(session) == [(1, 0), (2, 0)]
    core.nack(session, 1, 2, delay_ms=1000)
    assert core.times(session) == [(3, 0)]
    core.wait(2000)
    core.ack(session, "k", 2, 4)
    assert core.times(session) == [(1, 1)]
    core.ack(session, "k", 1, 2)
    core.settle()
    assert session.attachments[1].messages == 0 and session.owed == 0
    core.check()


@pytest.mark.parametrize("told_late_ms", [0, 19])
def test_a_delayed_message_is_never_early(core: NacksDriver, told_late_ms: int) -> None:
    session = attached(core)
    core.maintain()
    core.change(publish("k", b"a"))
    core.take(session)
    core.now_ms += told_late_ms  # The node was told an older time when the nack came.
    nacked_ms = core.now_ms
    core.nack(session, 1, 2, delay_ms=3000)
    while core.now_ms < nacked_ms + 2999:
        core.now_ms += 1
        core.maintain()
        assert core.times(session) == []
    core.wait(200)
    assert core.times(session) == [(1, 1)]


def test_a_delayed_message_waits_though_its_session_and_its_feed_end(core: NacksDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b"))
    core.take(session)
    core.nack(session, 1, 2, delay_ms=3000)
    core.dispatcher.close(session)
    core.pump()
    other = attached(core)
    assert core.times(other) == [(2, 1)]
    core.dispatcher.close(other)
    core.wait(2500)
    third = attached(core)
    assert core.times(third) == [(2, 2)]
    core.wait(1000)
    assert core.times(third) == [(1, 1)]
    core.dispatcher.close(third)
    core.wait(1000)
    assert not core.dispatcher.feeds


def test_after_a_restart_a_delayed_message_is_given_at_once(core: NacksDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.nack(session, 1, 2, delay_ms=3_600_000)
    core.restart()
    assert [offset for offset, _ in core.times(attached(core))] == [1]


def test_what_a_session_does_not_have_out_stays_as_it_is(core: NacksDriver) -> None:
    one, other = attached(core, messages=1), attached(core, messages=1)
    core.change(publish("k", b"a"), publish("k", b"b"), publish("k", b"c"))
    assert core.times(one) == [(1, 0)] and core.times(other) == [(2, 0)]
    core.ack(one, "k", 1, 2)
    assert core.times(one) == [(3, 0)]
    core.nack(one, 1, 3)  # Acked, and another's.
    core.nack(one, 7, 9)  # Not published yet.
    core.nack(one, 3, 3)
    core.nack(one, 1, 9, key="unknown")
    core.nack(one, 1, 9, handle=99)
    core.nack(one, 1, 9, queue="unknown")
    assert core.times(one) == [] and core.times(other) == []
    core.nack(one, 3, 4)
    core.nack(one, 3, 4, delay_ms=5)  # Twice: it is out again only once it was given.
    assert core.times(one) == [(3, 1)]
    core.settle()
    core.check()


def test_pulled_messages_come_back_by_their_queues_name(core: NacksDriver) -> None:
    session = core.session()
    core.change(publish("k", b"a", b"b", b"c"))
    assert core.pull(session, "q", 2, lease_ms=60_000)
    core.nack(session, 1, 2, queue="q")
    assert [(one.low, one.to, one.redelivered) for one in core.pull(session, "q", 1, 60_000)] == [(1, 2, 1)]
    core.nack(session, 0, 4, queue="q", delay_ms=2000)
    assert not session.pullers
    assert [(one.low, one.to) for one in core.pull(session, "q", 9)] == [(3, 4)]
    core.wait(3000)
    assert [(one.low, one.redelivered) for one in core.pull(session, "q", 9)] == [(1, 2), (2, 1)]


@pytest.mark.parametrize("ends", ["purge", "discard", "drop"])
def test_what_rests_goes_with_its_backlog(core: NacksDriver, ends: str) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b"))
    core.take(session)
    core.nack(session, 1, 2, delay_ms=1000)
    core.change({"purge": purge("q"), "discard": unbind("q", "k", discard=True), "drop": drop("q")}[ends])
    core.wait(2000)
    assert core.times(session) == []
    core.settle()
    core.check()


def test_what_rests_of_an_ended_binding_is_still_given(core: NacksDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b"))
    core.take(session)
    core.nack(session, 0, 3, delay_ms=1000)
    core.change(unbind("q", "k"))
    core.change(bind("q", "k", start=wire.START_EARLIEST))
    core.wait(2000)
    assert core.times(session) == [(1, 1), (2, 1)]
    core.ack(session, "k", 1, 3)
    core.settle()
    core.check()


def test_a_consumer_that_nacks_all_with_delays_gets_no_more_than_done_ranges_allow(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "DONE_RANGES_MAX", 20)
    session = attached(core, messages=10)
    for _ in range(100):
        core.change(publish("k", b"x"))
    got: list[int] = []
    for _ in range(100):
        for offset, _ in core.times(session):
            got.append(offset)
            core.nack(session, offset, offset + 1, delay_ms=60_000)
    assert len(got) <= 21 and got == sorted(got)
    core.wait(61_000)
    assert core.times(session)[0] == (1, 1)
    core.check_served()


def test_too_many_delayed_messages_are_refused_and_nothing_is_lost(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "RESTING_MAX", 6)
    monkeypatch.setattr(returns, "RESTS_PER_QUEUE_FLOOR", 0)
    session = attached(core)
    core.change(*[publish("k", b"x")] * 5)
    core.take(session)
    for offset in (1, 3, 5):
        core.nack(session, offset, offset + 1, delay_ms=1000)
    with pytest.raises(ResourceExhausted, match="the limit is 3"):
        core.nack(session, 2, 3, delay_ms=1000)
    core.nack(session, 2, 3)
    core.wait(1500)
    assert sorted(core.times(session)) == [(1, 1), (2, 1), (3, 1), (5, 1)]


def test_delays_that_ended_early_take_no_memory(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "RESTING_OVER_KEPT", 10)
    core.restart()
    session = attached(core)
    for _ in range(100):
        core.change(publish("k", b"x"))
        core.take(session)
        core.nack(session, 0, 1 << 40, delay_ms=3_600_000)
        core.change(purge("q"))
        core.wait(100)
    assert len(core.dispatcher.returns._delayed) <= 11


def test_bad_nacks_are_refused_whole(core: NacksDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    good = wire.Ack(key=b"k", to=2, handles=[1])
    with pytest.raises(OutOfRange, match="delay_ms is 86400001"):
        core.frame(session, wire.Nacks(messages=[good], delay_ms=86_400_001))
    with pytest.raises(InvalidName):
        core.frame(session, wire.Nacks(messages=[good, wire.Ack(key=b"", to=2, handles=[1])]))
    with pytest.raises(TooLarge):
        handles = [1] * (ACKED_CONSUMERS_PER_FRAME_MAX + 1)
        core.frame(session, wire.Nacks(messages=[wire.Ack(key=b"k", to=2, handles=handles)]))
    assert core.times(session) == []
    core.frame(session, wire.Nacks(messages=[good], delay_ms=86_400_000))


def test_what_a_change_acks_rests_no_more_and_the_rest_of_it_keeps_its_delay(core: NacksDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a", b"b", b"c", b"d"))
    core.take(session)
    core.nack(session, 1, 5, delay_ms=3000)
    core.change(acks(("q", "k", 2, 3)))  # Before the delay has begun.
    core.wait(1000)
    core.change(acks(("q", "k", 4, 5)))
    core.wait(1900)
    assert core.times(session) == []
    core.wait(300)
    assert core.times(session) == [(1, 1), (3, 1)]
    core.ack(session, "k", 1, 5)
    core.settle()
    assert not list(core.tables.log.scan()) and session.owed == 0
    core.check()


def test_what_is_not_acked_in_time_is_given_to_another_and_not_before(core: NacksDriver) -> None:
    core.timed("t")
    core.change(bind("t", "k"))
    stuck = attached(core, "t", messages=1)
    core.maintain()
    core.now_ms += 19
    core.change(publish("k", b"a"))
    assert core.times(stuck) == [(1, 0)]
    given_ms = core.now_ms
    other = attached(core, "t")
    while core.now_ms < given_ms + TIMEOUT_MS - 1:
        core.now_ms += 50 if core.now_ms < given_ms + TIMEOUT_MS - 100 else 1
        core.maintain()
        assert core.times(other) == []
    core.change(publish("k", b"b"))
    core.wait(200)
    assert sorted(core.times(other) + core.times(stuck)) == [(1, 1), (2, 0)]
    core.check_served()


def test_what_was_not_acked_in_time_is_given_to_another_first(core: NacksDriver) -> None:
    core.timed("t")
    core.change(bind("t", "k"), publish("k", b"a"))
    busy = attached(core, "t")
    assert core.times(busy) == [(1, 0)]
    other = attached(core, "t")
    core.wait(TIMEOUT_MS + 200)
    assert core.times(busy) == [] and core.times(other) == [(1, 1)]


def test_an_ack_in_time_ends_the_time_and_one_too_late_changes_nothing(core: NacksDriver) -> None:
    core.timed("t")
    core.change(bind("t", "k"))
    session = attached(core, "t")
    core.change(publish("k", b"a"), publish("k", b"b"))
    assert core.times(session) == [(1, 0), (2, 0)]
    core.wait(TIMEOUT_MS - 500)
    core.ack(session, "k", 1, 2)
    core.node.tick(core.now_ms, core.wall_ms)
    other = attached(core, "t")
    core.dispatcher.detach(session, 1)
    assert core.times(other) == [(2, 1)]
    core.wait(TIMEOUT_MS - 500)
    assert core.times(other) == []
    core.wait(1000)
    assert core.times(other) == [(2, 2)]
    core.ack(other, "k", 2, 3)
    core.settle()
    assert core.times(other) == []
    core.check()


def test_the_time_begins_anew_with_each_delivery_and_after_a_restart(core: NacksDriver) -> None:
    core.timed("t")
    core.change(bind("t", "k"), publish("k", b"a"))
    session = attached(core, "t")
    assert [offset for offset, _ in core.times(session)] == [1]
    core.wait(TIMEOUT_MS - 500)
    core.restart()
    session = attached(core, "t")
    assert core.times(session) == [(1, 0)]
    core.wait(TIMEOUT_MS - 500)
    assert core.times(session) == []
    for times in (1, 2, 3):
        core.wait(TIMEOUT_MS + 200)
        assert core.times(session) == [(1, times)]


def test_a_pulls_lease_takes_the_place_of_the_ack_timeout(core: NacksDriver) -> None:
    core.timed("t")
    core.change(bind("t", "k"), publish("k", b"a", b"b"))
    session = core.session()
    assert core.pull(session, "t", 1, lease_ms=60_000)
    assert core.pull(session, "t", 1)
    core.wait(TIMEOUT_MS + 500)
    assert [(one.low, one.to) for one in core.pull(session, "t", 9)] == [(2, 3)]
    core.wait(60_000)
    assert [(one.low, one.to, one.redelivered) for one in core.pull(session, "t", 9)] == [(1, 3, 1)]


def test_a_queue_without_an_ack_timeout_gives_nothing_again(core: NacksDriver) -> None:
    session, other = attached(core, messages=1), attached(core)
    core.change(publish("k", b"a"))
    assert len(core.times(session)) == 1
    core.wait(100 * TIMEOUT_MS)
    assert core.times(other) == [] and not len(core.dispatcher.registry.leases)
