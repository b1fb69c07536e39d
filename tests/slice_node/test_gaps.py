"""What consumers still had to get and a key gave up: the key's low rises above cursors, and they are told of a gap."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Conflict
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.read.reading import describe_key, describe_queue

from .core_driver import CoreDriver, acks, bind, configure, declare, drop_if, publish, purge, unbind

LAST_3 = KeyOptions(capacity_messages=3, policy="drop_oldest")
DROPPED = wire.GAP_REASON_DROPPED


@pytest.fixture
def core() -> CoreDriver:
    driver = CoreDriver()
    driver.change(declare("q"), configure("k", LAST_3), bind("q", "k"))
    return driver


def fill(core: CoreDriver, messages: int, first: int = 1) -> None:
    for number in range(first, first + messages):
        assert not core.change(publish("k", b"%d" % number)).steps[0].refusals
    core.check()


def told(core: CoreDriver) -> list[tuple[int, int]]:
    """The gaps since the last call."""
    gaps, core.gaps = core.gaps, []
    assert all(gap.key == b"k" and gap.why == DROPPED for gap in gaps)
    return [(gap.first, gap.to) for gap in gaps]


def offsets(core: CoreDriver, session: Session) -> list[int]:
    return [offset for _, offset, _ in core.take(session)]


def backlog(core: CoreDriver) -> int:
    return describe_queue(core.state, b"q", 10).messages


def test_the_oldest_messages_make_room(core: CoreDriver) -> None:
    fill(core, 10)
    described = describe_key(core.state, b"k")
    assert (described.low, described.head, described.body_bytes) == (8, 11, 4)
    assert backlog(core) == 3
    assert describe_queue(core.state, b"q", 10).bindings[0].cursor == 8


def test_capacity_in_bytes_drops_too_and_whole_chunks(core: CoreDriver) -> None:
    core.change(configure("b", KeyOptions(capacity_bytes=100, policy="drop_oldest")), bind("q", "b"))
    for _ in range(20):
        core.change(publish("b", b"x" * 20, b"y" * 19))
    assert describe_key(core.state, b"b").body_bytes == 78
    core.change(publish("b", b"z" * 61))
    assert describe_key(core.state, b"b").body_bytes == 100
    core.check()


def test_a_chunk_larger_than_the_capacity_is_refused_and_nothing_is_dropped(core: CoreDriver) -> None:
    fill(core, 3)
    refusal = core.change(publish("k", *[b"x"] * 4)).steps[0].refusals[0].error
    assert (refusal.limit, refusal.value) == (3, 4)
    assert backlog(core) == 3
    assert not core.change(publish("k", *[b"x"] * 3)).steps[0].refusals
    assert describe_key(core.state, b"k").low == 4


def test_a_capacity_that_was_lowered_is_kept_by_the_next_publish(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=1000, policy="drop_oldest")))
    fill(core, 300)
    core.change(configure("k", LAST_3))
    fill(core, 1)
    assert (describe_key(core.state, b"k").low, backlog(core)) == (299, 3)


def test_a_queue_that_attaches_later_is_told_first_and_once(core: CoreDriver) -> None:
    fill(core, 10)
    session = core.session()
    core.attach(session, "q")
    core.pump()
    first = core.dispatcher.take(session, 1 << 20)
    assert [(gap.first, gap.to, list(gap.handles)) for gap in first.gaps] == [(1, 8, [1])]
    core.dispatcher.sent(session, first.cost_bytes)
    assert [delivery.low for delivery in first.deliveries] == [8, 9, 10]
    core.flush()
    core.dispatcher.close(session)
    core.pump()
    again = core.session()
    core.attach(again, "q")
    assert (offsets(core, again), told(core)) == ([8, 9, 10], [])
    core.check()


def test_a_slow_consumer_is_told_between_its_messages(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q", messages=2)
    fill(core, 2)
    assert offsets(core, session) == [1, 2]
    fill(core, 8, 3)
    assert (offsets(core, session), told(core)) == ([], [])
    core.ack(session, "k", 1, 3)
    assert (offsets(core, session), told(core)) == ([8, 9], [(3, 8)])
    core.ack(session, "k", 8, 10)
    assert offsets(core, session) == [10]
    core.ack(session, "k", 10, 11)
    core.flush()
    assert backlog(core) == 0
    core.check()


def test_a_consumer_that_passed_hears_nothing_and_its_late_acks_change_nothing(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    fill(core, 10)
    assert (offsets(core, session), told(core)) == (list(range(1, 11)), [])
    core.ack(session, "k", 2, 3)
    core.ack(session, "k", 9, 10)
    core.flush()
    core.ack(session, "k", 1, 9)
    core.flush()
    assert backlog(core) == 1
    core.check()


def test_what_comes_back_and_is_gone_is_told(core: CoreDriver) -> None:
    session, other = core.session(), core.session()
    core.attach(session, "q")
    fill(core, 5)
    assert offsets(core, session) == [1, 2, 3, 4, 5]
    core.ack(session, "k", 2, 3)
    fill(core, 5, 6)
    core.dispatcher.close(session)
    core.attach(other, "q")
    assert (offsets(core, other), told(core)) == ([8, 9, 10], [(1, 2), (3, 8)])
    core.ack(other, "k", 8, 11)
    core.flush()
    assert backlog(core) == 0
    core.check()


def test_a_pull_gets_the_gap_with_its_messages(core: CoreDriver) -> None:
    fill(core, 10)
    session = core.session()
    assert [delivery.low for delivery in core.pull(session, "q", 2)] == [8, 9]
    assert told(core) == [(1, 8)]
    core.flush()
    assert [delivery.low for delivery in core.pull(session, "q", 2)] == [10]
    assert told(core) == []


def test_many_lost_stretches_are_told_as_a_bounded_number_of_gaps(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=200, policy="drop_oldest")))
    session = core.session()
    core.attach(session, "q")
    fill(core, 100)
    assert len(offsets(core, session)) == 100
    for offset in range(2, 100, 2):
        core.ack(session, "k", offset, offset + 1)
    core.dispatcher.close(session)
    core.change(configure("k", LAST_3))
    fill(core, 3, 101)
    other = core.session()
    core.attach(other, "q")
    assert offsets(core, other) == [101, 102, 103]
    gaps = told(core)
    assert len(gaps) == 16
    assert (gaps[0], gaps[-1]) == ((1, 2), (31, 101))
    core.flush()
    core.check()


def test_what_a_session_has_within_a_gap_stays_in_its_window(core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last gap of many spans what is out, too. That was taken for done: the session got more than its window."""
    monkeypatch.setattr("shoal_slice_node.core.dispatch.gaps.GAPS_AT_ONCE_MAX", 1)
    session = core.session()
    core.attach(session, "q", messages=3)
    fill(core, 3)
    assert offsets(core, session) == [1, 2, 3]
    key_id = next(iter(next(iter(core.dispatcher.feeds.values())).streams))
    for offset in (1, 3):
        core.dispatcher.nack(session.attachments[1], key_id, offset, offset + 1, NackTerms())
    fill(core, 3, 4)
    assert (offsets(core, session), told(core)) == ([4, 5], [(1, 4)])
    core.ack(session, "k", 2, 3)
    assert (offsets(core, session), told(core)) == ([6], [])
    core.ack(session, "k", 4, 7)
    core.flush()
    assert backlog(core) == 0
    core.check()


def test_an_ended_binding_keeps_what_is_left_and_vanishes_with_the_rest(core: CoreDriver) -> None:
    fill(core, 3)
    core.change(unbind("q", "k"), declare("r"), bind("r", "k"))
    fill(core, 1, 4)
    assert backlog(core) == 2
    fill(core, 4, 5)
    assert backlog(core) == 0
    core.change(purge("r"))
    core.settle()
    core.check()
    assert not list(core.tables.ended.scan())
    core.change(unbind("r", "k"), configure("k", KeyOptions()))
    core.settle()
    core.check()
    assert not describe_key(core.state, b"k").exists


def test_a_binding_that_ended_is_bound_again_after_its_backlog_went(core: CoreDriver) -> None:
    fill(core, 3)
    core.change(unbind("q", "k"), declare("r"), bind("r", "k"))
    fill(core, 6, 4)
    outcome = core.change(bind("q", "k", start=wire.START_EARLIEST))
    assert list(outcome.steps[0].offsets) == [7]
    core.check()
    session = core.session()
    core.attach(session, "q")
    assert (offsets(core, session), told(core)) == ([7, 8, 9], [(1, 4)])
    core.change(unbind("q", "k"))
    core.check()


def test_an_unbind_keeps_only_what_the_key_keeps(core: CoreDriver) -> None:
    fill(core, 9)
    core.change(unbind("q", "k"))
    core.check()
    assert backlog(core) == 3
    core.change(bind("q", "k"))
    core.check()
    session = core.session()
    core.attach(session, "q")
    assert (offsets(core, session), told(core)) == ([7, 8, 9], [(1, 7)])


def test_an_attached_queue_is_told_of_what_its_ended_binding_lost(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q", messages=1)
    fill(core, 3)
    assert offsets(core, session) == [1]
    core.change(unbind("q", "k"), declare("r"), bind("r", "k"))
    fill(core, 6, 4)
    core.settle()
    core.ack(session, "k", 1, 2)
    assert (offsets(core, session), told(core)) == ([], [(2, 4)])
    core.flush()
    core.check()
    assert not list(core.tables.ended.scan())


def test_purge_and_drop_if_empty_count_what_is_kept(core: CoreDriver) -> None:
    fill(core, 9)
    assert core.change(drop_if("q", empty=True)).steps[0].refusals
    assert list(core.change(purge("q")).steps[0].messages) == [3]
    fill(core, 3, 10)
    core.change(unbind("q", "k"), declare("r"), bind("r", "k"))
    fill(core, 9, 13)
    assert not core.change(drop_if("q", empty=True)).steps[0].refusals
    core.check()


def test_an_ack_in_a_change_of_what_is_gone_is_refused(core: CoreDriver) -> None:
    fill(core, 9)
    assert core.change(acks(("q", "k", 1, 2))).steps[0].refusals
    with pytest.raises(Conflict, match="are not kept any more"):
        core.change(acks(("q", "k", 6, 8)), atomic=True)
    assert not core.change(acks(("q", "k", 7, 8)), atomic=True).steps[0].refusals
    assert backlog(core) == 2
    core.check()


def test_a_transaction_drops_the_oldest_or_nothing(core: CoreDriver) -> None:
    fill(core, 3)
    with pytest.raises(Conflict):
        core.change(publish("k", b"a", b"b"), acks(("q", "k", 1, 2)), atomic=True)
    assert describe_key(core.state, b"k").low == 1
    core.check()
    core.change(publish("k", b"a", b"b"), publish("k", b"c"), atomic=True)
    assert (describe_key(core.state, b"k").low, backlog(core)) == (4, 3)
    core.check()


def test_a_log_whose_oldest_messages_go_stays_short(core: CoreDriver) -> None:
    fill(core, 1000)
    assert sum(1 for _ in core.tables.log.scan()) == 3
    core.settle()
    core.check()


def test_what_a_session_had_that_has_just_ended_is_a_gap_for_the_next(core: CoreDriver) -> None:
    """It has so many queues that taking back what it had is done in turns."""
    others = [f"other-{number}" for number in range(300)]
    core.change(declare(*others), publish("k", b"1"))
    ending, next_one = core.session(), core.session()
    core.attach(ending, "q", 1)
    for handle, other in enumerate(others, 2):
        core.attach(ending, other, handle)
    assert offsets(core, ending) == [1]
    core.attach(next_one, "q", messages=1)
    core.dispatcher.close(ending)
    core.change(publish("k", b"2", b"3", b"4"))
    for offset in (2, 3, 4):
        assert offsets(core, next_one) == [offset]
        core.ack(next_one, "k", offset, offset + 1)
        core.settle()
    assert told(core) == [(1, 2)]


@pytest.mark.parametrize("how", ["closes", "detaches", "gives back", "nacks"])
def test_what_was_sent_and_comes_back_after_the_key_dropped_it_is_a_gap(core: CoreDriver, how: str) -> None:
    """It was done without a word as its consumer had it, though no program had been given it."""
    core.change(configure("k", KeyOptions(capacity_messages=30, policy="drop_oldest")))
    first = core.session()
    core.attach(first, "q", messages=10)
    fill(core, 30)
    assert offsets(core, first) == [*range(1, 11)]
    core.ack(first, "k", 1, 7)
    fill(core, 30, 31)
    core.pump()
    assert offsets(core, first) == [*range(31, 37)] and told(core) == [(11, 31)]
    core.ack(first, "k", 7, 8)
    core.flush()
    if how == "closes":
        core.dispatcher.close(first)
    elif how == "detaches":
        core.dispatcher.detach(first, 1)
    else:
        attachment = first.attachments[1]
        core.dispatcher.stop(first, 1)
        key_id = next(iter(attachment.feed.streams))
        core.dispatcher.nack(attachment, key_id, 8, 11, NackTerms(unseen=how == "gives back"))
    core.settle()
    second = core.session()
    core.attach(second, "q", messages=1000)
    core.settle()
    assert offsets(core, second) == [*range(31 if how in ("closes", "detaches") else 37, 61)]
    assert told(core) == [(8, 11)]
    core.check()


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("ack_timeout_ms", [0, 30_000])
@pytest.mark.parametrize("window", [6, 100])
def test_what_was_given_again_while_older_ones_are_out_and_gone_ends_nothing(
    dropped: bool, ack_timeout_ms: int, window: int
) -> None:
    """The next publish ended the slice: it looked for the first of what is to be given again, and nothing was."""
    core = CoreDriver()
    step = declare("q")
    step.declares.options.ack_timeout_ms = ack_timeout_ms
    core.change(step)
    if dropped:
        core.change(configure("k", KeyOptions(capacity_messages=6, policy="drop_oldest")))
    core.change(bind("q", "k"))
    session = core.session()
    core.attach(session, "q", messages=window)
    core.change(publish("k", b"1", b"2", b"3", ttl_ms=0 if dropped else 1000), publish("k", b"4", b"5", b"6"))
    assert offsets(core, session) == [*range(1, 7)]
    if dropped:
        core.change(publish("k", b"7"))
    else:
        core.now_ms += 5000
        core.maintain()
        core.maintain()
    (key_id,) = session.attachments[1].feed.streams
    got: list[int] = []
    for nacked in (5, 6, 5):
        core.dispatcher.nack(session.attachments[1], key_id, nacked, nacked + 1, NackTerms())
        got += offsets(core, session)
        core.change(publish("k", b"x"))
        got += offsets(core, session)
    core.ack(session, "k", 1, 7)
    core.settle()
    got += offsets(core, session)
    assert sorted(set(got)) == [5, 6, *range(7, 11 if dropped else 10)]
    core.check()
