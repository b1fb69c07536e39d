"""Messages with a time to live: not handed out once it is over, told as a gap, given up while nothing consumes."""

from __future__ import annotations

import pytest

from shoal_contract.errors import Malformed, OutOfRange
from shoal_contract.limits import CHUNK_MESSAGES_MAX, TTL_MS_MAX
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Due, Kind, encode_due
from shoal_slice_node.core.dispatch import growing
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import DONE_RANGES_MAX
from shoal_slice_node.core.read.reading import describe_key, describe_queue, peek
from shoal_slice_node.core.rows.history_row import EXPIRING
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import (
    WALL_AHEAD_MS,
    CoreDriver,
    bind,
    configure,
    declare,
    every_second,
    publish,
    unbind,
    with_done,
)

EXPIRED = wire.GAP_REASON_EXPIRED


@pytest.fixture
def core() -> CoreDriver:
    driver = CoreDriver()
    driver.change(declare("q"), bind("q", "k"))
    return driver


def later(core: CoreDriver, ms: int) -> None:
    """The leader hears the time, and does nothing else."""
    core.now_ms += ms
    core.dispatcher.tell_time(core.wall_ms)


def told(core: CoreDriver) -> list[tuple[int, int]]:
    gaps, core.gaps = core.gaps, []
    assert all(gap.key == b"k" and gap.why == EXPIRED for gap in gaps)
    return [(gap.first, gap.to) for gap in gaps]


def offsets(core: CoreDriver, session: Session) -> list[int]:
    return [offset for _, offset, _ in core.take(session)]


def mixed(core: CoreDriver) -> None:
    """Offsets 1 (for ever), 2 and 3 (100 ms), 4 (for ever), 5 (200 ms)."""
    core.change(publish("k", b"1"), publish("k", b"2", b"3", ttl_ms=100), publish("k", b"4"))
    core.change(publish("k", b"5", ttl_ms=200))
    core.check()


def test_a_message_is_delivered_with_the_time_when_it_expires(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    mixed(core)
    found = core.deliveries(session)
    assert [(one.low, one.expires_ms) for one in found] == [
        (1, 0),
        (2, core.wall_ms + 100),
        (4, 0),
        (5, core.wall_ms + 200),
    ]


def test_what_expired_is_not_given_but_told_to_a_late_consumer(core: CoreDriver) -> None:
    mixed(core)
    later(core, 99)
    session = core.session()
    assert [delivery.low for delivery in core.pull(session, "q", 2)] == [1, 2], "1 ms is left"
    core.dispatcher.close(session)
    later(core, 1)
    other = core.session()
    core.attach(other, "q")
    assert (offsets(core, other), told(core)) == ([1, 4, 5], [(2, 4)])
    core.ack(other, "k", 1, 6)
    core.flush()
    assert describe_queue(core.state, b"q", 0).messages == 0
    core.check()


def test_pull_and_peek_give_nothing_that_expired(core: CoreDriver) -> None:
    mixed(core)
    later(core, 100)
    queue_id = core.tables.queue_by_name.get(b"q") or b""
    wall_ms = core.dispatcher.expiry_clock_ms
    assert [one.low for one in finish(peek(core.state, queue_id, 10, 1 << 20, wall_ms))] == [1, 4, 5]
    session = core.session()
    assert [delivery.low for delivery in core.pull(session, "q", 10)] == [1, 4, 5]
    assert told(core) == [(2, 4)]
    core.check_served()


def test_nothing_is_given_that_expired_since_it_was_read_for_another_queue(core: CoreDriver) -> None:
    """A chunk that was read is kept for a moment. What is pulled does not wait for a session, which would look."""
    core.change(declare("other", "third"), bind("other", "k"), bind("third", "k"))
    mixed(core)
    reader = core.session()
    core.attach(reader, "other")
    assert offsets(core, reader) == [1, 2, 3, 4, 5]
    key_id = (core.tables.key.get(core.state.full_name(b"k")) or b"")[ID]
    assert core.dispatcher.registry.recent.get(key_id, 2) is not None
    later(core, 100)
    assert [delivery.low for delivery in core.pull(core.session(), "q", 10)] == [1, 4, 5]
    assert told(core) == [(2, 4)]
    session = core.session()
    core.attach(session, "third")
    core.pump()
    assert [one.low for one in session.waiting.values() if one.is_gap] == [2]


def test_the_lowest_message_is_not_given_once_it_expired_though_no_other_may_be_given(core: CoreDriver) -> None:
    core.change(publish("k", b"short", ttl_ms=100))
    for _ in range(2 * DONE_RANGES_MAX // CHUNK_MESSAGES_MAX):
        core.change(publish("k", *[b""] * CHUNK_MESSAGES_MAX))
    with_done(core, "q", ["k"], every_second(DONE_RANGES_MAX))
    later(core, 100)
    assert [(one.low, one.to) for one in core.pull(core.session(), "q", 1)] == []
    assert told(core) == [(1, 2)]
    core.check_served()


def test_what_is_out_and_comes_back_expired_is_not_given_again(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    mixed(core)
    assert offsets(core, session) == [1, 2, 3, 4, 5]
    core.ack(session, "k", 3, 4)
    later(core, 150)
    core.dispatcher.close(session)
    other = core.session()
    core.attach(other, "q")
    assert (offsets(core, other), told(core)) == ([1, 4, 5], [(2, 3)])
    core.ack(other, "k", 1, 6)
    core.flush()
    assert describe_queue(core.state, b"q", 0).messages == 0
    core.check()


def test_what_waits_for_its_session_and_expires_is_told_instead(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    mixed(core)
    core.pump()
    later(core, 150)
    assert (offsets(core, session), told(core)) == ([1, 4, 5], [(2, 4)])
    core.ack(session, "k", 1, 6)
    core.flush()
    assert describe_queue(core.state, b"q", 0).messages == 0
    assert session.under_way_bytes == 0 and not session.attachments[1].messages
    core.check()


def test_a_chunk_that_expires_while_it_waits_for_its_turn_is_told(
    core: CoreDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "GIVEN_AT_ONCE_MAX", 10)
    queues = [f"q{number}" for number in range(30)]
    core.declare(queues)
    core.change_all(bind(queue, "k") for queue in queues)
    session = core.session(1 << 30)
    for number, queue in enumerate(queues):
        core.attach(session, queue, 10 + number)
    core.change(publish("k", b"now", ttl_ms=50))
    assert core.dispatcher.growing.spreads
    later(core, 60)
    assert offsets(core, session) == [] and told(core)
    assert describe_queue(core.state, b"q0", 0).messages == 1
    core.flush()
    assert describe_queue(core.state, b"q0", 0).messages == 0
    core.check()


def test_a_nack_with_a_delay_does_not_outlive_the_message(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    core.change(publish("k", b"short", ttl_ms=100))
    assert offsets(core, session) == [1]
    row = core.tables.key.get(core.state.full_name(b"k")) or b""
    core.dispatcher.nack(session.attachments[1], row[1:9], 1, 2, NackTerms(500))
    core.settle()
    assert (offsets(core, session), told(core)) == ([], [(1, 2)])
    core.settle()
    core.check()
    assert not describe_key(core.state, b"k").body_bytes


def test_a_consumer_that_acked_hears_nothing(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    mixed(core)
    assert offsets(core, session) == [1, 2, 3, 4, 5]
    core.ack(session, "k", 1, 6)
    core.flush()
    later(core, 5_000)
    core.settle()
    assert told(core) == []
    core.check()
    assert not [row_key for row_key, _ in core.tables.history.scan()] and not list(core.tables.due.scan())


def test_the_beginning_of_a_log_is_given_up_with_nobody_there(core: CoreDriver) -> None:
    for _ in range(200):
        core.change(publish("k", b"short", ttl_ms=100))
    core.change(publish("k", b"long", ttl_ms=60_000), publish("k", b"short", ttl_ms=100))
    core.check()
    core.now_ms += 99
    core.maintain()
    assert describe_key(core.state, b"k").low == 1, "nothing is early"
    core.settle()
    described = describe_key(core.state, b"k")
    assert (described.low, described.head) == (201, 203)
    core.check()
    core.now_ms += 60_000
    core.settle()
    assert describe_key(core.state, b"k").low == 203 and not list(core.tables.log.scan())
    core.check()
    session = core.session()
    core.attach(session, "q")
    assert (offsets(core, session), told(core)) == ([], [(1, 203)])


def test_what_is_behind_a_message_that_stays_goes_when_that_is_read(core: CoreDriver) -> None:
    core.change(publish("k", b"stays"), publish("k", b"short", ttl_ms=100), publish("k", b"long", ttl_ms=9_000_000))
    core.settle()
    assert describe_key(core.state, b"k").low == 1
    ((row_key, _),) = core.tables.history.scan()
    assert row_key.startswith(EXPIRING) and not list(core.tables.due.scan())
    session = core.session()
    (first,) = core.pull(session, "q", 1)
    row = core.tables.key.get(core.state.full_name(b"k")) or b""
    core.dispatcher.ack(next(iter(session.pullers.values())), row[1:9], 1, 2)
    core.flush()
    core.dispatcher.close(session)
    core.settle()
    assert first.low == 1 and describe_key(core.state, b"k").low == 3
    core.check()
    core.change(unbind("q", "k", discard=True))
    core.settle()
    core.check()
    assert not list(core.tables.history.scan()) and not list(core.tables.due.scan()), "the key vanished"


def test_messages_expire_by_the_machines_clock_and_not_by_the_one_that_only_grows(core: CoreDriver) -> None:
    """The node hears of both clocks in a tick, and no record tells the time after that."""
    session = core.session()
    core.attach(session, "q")
    core.change(publish("k", b"1", ttl_ms=100))
    core.now_ms += 10 * WALL_AHEAD_MS
    core.wall_ahead_ms -= 10 * WALL_AHEAD_MS
    core.node.tick(core.now_ms, core.wall_ms)
    assert (offsets(core, session), told(core)) == ([1], [])
    core.change(publish("k", b"2", ttl_ms=100))
    core.pump()
    core.wall_ahead_ms += 100
    core.node.tick(core.now_ms, core.wall_ms)
    assert (offsets(core, session), told(core)) == ([], [(2, 3)])


def test_a_clock_that_goes_back_gives_nothing_again(core: CoreDriver) -> None:
    core.change(publish("k", b"short", ttl_ms=100))
    later(core, 150)
    core.wall_ahead_ms -= 1_000
    later(core, 0)
    session = core.session()
    core.attach(session, "q")
    assert (offsets(core, session), told(core)) == ([], [(1, 2)])
    core.restart()
    core.maintain()
    core.check()


def test_a_delayed_publish_lives_from_when_it_is_published(core: CoreDriver) -> None:
    core.change(publish("k", b"later", not_before_ms=core.wall_ms + 500, ttl_ms=300))
    core.check()
    core.now_ms += 600
    core.maintain()
    core.check()
    session = core.session()
    core.attach(session, "q")
    (delivery,) = core.deliveries(session)
    assert delivery.expires_ms == delivery.time_ms + 300 == core.wall_ms + 300


def test_a_transaction_with_a_ttl_is_tried_without_a_trace(core: CoreDriver) -> None:
    with pytest.raises(Exception, match="nothing of it was done"):
        core.change(publish("k", b"x", ttl_ms=100), publish("none", b"y", mandatory=True), atomic=True)
    assert not list(core.tables.history.scan()) and not list(core.tables.due.scan())
    core.change(publish("k", b"x", ttl_ms=100), atomic=True)
    core.check()
    assert len(list(core.tables.due.scan())) == 1


def test_a_key_that_drops_the_oldest_and_expires_keeps_its_books(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=3, policy="drop_oldest")))
    for number in range(12):
        core.change(publish("k", b"x", ttl_ms=(0, 100, 5_000)[number % 3]))
        core.check()
    core.settle()
    core.check()


def test_an_expired_dead_letter_is_not_copied() -> None:
    core = CoreDriver()
    options = QueueOptions(max_deliveries=1, dead_letter="dead")
    core.change(wire.Step(declares=wire.Declares(queues=[b"q", b"r"], options=options.to_wire())), bind("q", "k"))
    core.change(declare("g"), bind("g", "dead"), publish("k", b"short", ttl_ms=100), publish("k", b"stays"))
    session = core.session()
    core.attach(session, "q")
    assert offsets(core, session) == [1, 2]
    later(core, 200)
    core.dispatcher.close(session)
    core.settle()
    found = core.session()
    core.attach(found, "g")
    assert [body for _, _, body in core.take(found)] == [b"stays"]
    core.check()


def test_a_wrong_ttl_is_refused_by_name() -> None:
    for step, error in (
        (publish("k", b"x", ttl_ms=TTL_MS_MAX + 1), OutOfRange),
        (publish("k", b"x", ttl_ms=5, live=True), Malformed),
    ):
        with pytest.raises(error, match="ttl"):
            parse_change(wire.Change(steps=[step]).SerializeToString())
    parse_change(wire.Change(steps=[publish("k", b"x", ttl_ms=TTL_MS_MAX)]).SerializeToString())


def test_a_due_record_of_what_is_over_already_changes_nothing(core: CoreDriver) -> None:
    core.change(publish("k", b"short", ttl_ms=100))
    ((row_key, _),) = core.tables.due.scan()
    core.record(Kind.DUE, encode_due([]))
    core.settle()
    core.record(Kind.DUE, encode_due([Due(row_key, b"k")]))
    core.check()
