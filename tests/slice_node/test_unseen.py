"""What a client gives back as handed to no program counts no delivery; a stopped handle gets nothing more."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed, TooLarge
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import QUEUES_PER_ATTACH_MAX

from .core_driver import bind, declare, drop, publish, unbind
from .nacks_driver import TIMEOUT_MS, NacksDriver
from .unsent_steps import attached, declared, leave


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "dead"))
    declared(core, "q", max_deliveries=2)
    core.change(bind("q", "k"), *[publish("k", b"x")] * 5)
    return core


def give_back(core: NacksDriver, session: Session, low: int, to: int, *stop: int) -> None:
    ack = wire.Ack(key=b"k", low=low, to=to, handles=[1])
    core.frame(session, wire.Nacks(messages=[ack], unseen=True, stop=stop))
    core.pump()
    core.settle()


def test_what_no_program_was_given_counts_no_delivery(core: NacksDriver) -> None:
    for _ in range(5):
        session = attached(core)
        assert core.times(session) == [(offset, 0) for offset in range(1, 6)]
        give_back(core, session, 1, 6, 1)
        leave(core, session)
    assert core.state.counters.nacks == core.state.counters.dead_nacked == 0
    assert core.take(attached(core, "dead")) == []


def test_it_keeps_the_count_that_it_had(core: NacksDriver) -> None:
    session = attached(core)
    core.take(session)
    core.nack(session, 2, 4)
    core.settle()
    for _ in range(3):
        assert core.times(session) == [(2, 1), (3, 1)]
        give_back(core, session, 2, 4)
    core.take(session)
    core.nack(session, 2, 3)
    core.pump()
    core.settle()
    assert len(core.take(attached(core, "dead"))) == 1, "2 deliveries that count; those between did not"


def test_others_get_what_a_stopped_handle_gives_back_and_it_keeps_the_rest(core: NacksDriver) -> None:
    session = attached(core)
    core.take(session)
    other = attached(core)
    give_back(core, session, 3, 6, 1)
    assert core.times(session) == []
    assert core.times(other) == [(3, 0), (4, 0), (5, 0)]
    core.change(publish("k", b"new"))
    core.pump()
    assert core.times(session) == []
    core.ack(session, "k", 1, 3)
    core.settle()
    core.take(other)
    leave(core, other)
    leave(core, session)
    found = core.times(attached(core))
    assert found == [(3, 1), (4, 1), (5, 1), (6, 1)], "acks of what is out take effect after a stop"


def test_it_is_given_again_with_a_new_ack_timeout(core: NacksDriver) -> None:
    declared(core, "timed", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("timed", "t"), publish("t", b"x"))
    session = attached(core, "timed")
    for _ in range(4):
        assert core.times(session) == [(1, 0)]
        core.wait(TIMEOUT_MS * 3 // 5)
        core.frame(session, wire.Nacks(messages=[wire.Ack(key=b"t", low=1, to=2, handles=[1])], unseen=True))
        core.pump()
    assert core.times(session) == [(1, 0)]
    core.wait(2 * TIMEOUT_MS)
    assert core.times(session) == [(1, 1)]


def test_a_stop_lasts_over_a_new_life_of_the_queue_and_ends_with_an_attach(core: NacksDriver) -> None:
    session = attached(core)
    core.take(session)
    core.frame(session, wire.Nacks(stop=[1, 77]))
    core.change(drop("q"))
    declared(core, "q")
    core.change(bind("q", "k"), publish("k", b"new"))
    core.pump()
    assert core.times(session) == []
    assert core.attach(session, "q", handle=1)
    core.pump()
    assert [offset for offset, _ in core.times(session)] == [6]


def test_bad_frames_are_refused_whole(core: NacksDriver) -> None:
    session = attached(core)
    core.take(session)
    named = wire.Ack(key=b"k", low=1, to=6, handles=[1])
    with pytest.raises(Malformed, match="delay_ms"):
        core.frame(session, wire.Nacks(messages=[named], unseen=True, delay_ms=1))
    with pytest.raises(TooLarge):
        core.frame(session, wire.Nacks(messages=[named], unseen=True, stop=[1] * (QUEUES_PER_ATTACH_MAX + 1)))
    with pytest.raises(Malformed, match="unary"):
        core.frame(session, wire.Nacks(stop=[1]), everyone=True)
    core.pump()
    assert core.times(session) == []


def test_a_queue_whose_pulled_messages_are_unbound_away_is_consumed_no_longer() -> None:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), bind("q", "l"), publish("k", b"a", b"b"))
    session = core.session()
    assert core.pull(session, "q", 2)
    queue_id = core.tables.queue_by_name.get(b"q")
    assert queue_id is not None and core.dispatcher.registry.is_consumed(queue_id)
    core.change(unbind("q", "k", discard=True))
    core.settle()
    assert not core.dispatcher.registry.is_consumed(queue_id)


@pytest.mark.parametrize("lease_ms", [0, TIMEOUT_MS])
def test_what_was_pulled_and_no_program_was_given_comes_to_another_session_in_order(lease_ms: int) -> None:
    core = NacksDriver()
    declared(core, "q", max_deliveries=2)
    core.change(bind("q", "k"), *[publish("k", b"x")] * 5)
    for _ in range(3):
        session = core.session()
        pulled = core.pull(session, "q", 3, lease_ms)
        assert [(one.low, one.redelivered) for one in pulled] == [(1, 0), (2, 0), (3, 0)]
        named = wire.Ack(key=b"k", low=1, to=4, queues=[b"q"])
        core.frame(session, wire.Nacks(messages=[named], unseen=True))
        core.settle()
    assert core.times(attached(core)) == [(offset, 0) for offset in range(1, 6)]
