"""What comes back from those that leave comes before what lies behind it: nobody was given it yet."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import bringing_back, filling, pulling
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import LEAVING_LOOKS_MAX

from .core_driver import CoreDriver, bind, declare, publish
from .nacks_driver import NacksDriver
from .unsent_steps import declared

WINDOW, MESSAGES = 100, 250
KINDS = range(len(CoreDriver().dispatcher._pump._kinds))
"""Places at which the pump may begin: one for each kind of its work."""


def consumed(core: CoreDriver, session: Session) -> list[tuple[int, int]]:
    """All that comes, acked: offset and `redelivered`."""
    found: list[tuple[int, int]] = []
    while True:
        core.dispatcher.reads(session)
        core.pump()
        if not session.waiting:
            return found
        for delivery in core.deliveries(session):
            found += [(offset, delivery.redelivered) for offset in range(delivery.low, delivery.to)]
            for handle in delivery.handles:
                core.ack(session, delivery.key.decode(), delivery.low, delivery.to, handle)


def of_many(messages: int) -> CoreDriver:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", b"x") for _ in range(messages))
    return core


def with_handles(core: CoreDriver, session: Session, count: int) -> None:
    """Lets a session attach queues that are not there, under the handles from 2 on."""
    for handle in range(2, count):
        core.dispatcher.attach(session, b"none %d" % handle, handle, 1, 1)


def sent_one_of_two(core: NacksDriver, *others: str) -> Session:
    """Returns a session that has `a`, with one delivery allowed, under handle 1, and was sent one message of two.
    `others` have to get both, too."""
    core.change(declare("dead", "noise"), bind("dead", "dead"))
    declared(core, "a", max_deliveries=1)
    core.change(declare(*others), bind("a", "k"), bind("noise", "n"), publish("k", b"1"), publish("k", b"2"))
    core.change(*[bind(name, "k", start=wire.START_EARLIEST) for name in others])
    session = core.session()
    core.attach(session, "a", 1)
    core.pump()
    taken = core.dispatcher.take(session, 1)
    core.dispatcher.sent(session, taken.cost_bytes)
    assert [one.low for one in taken.deliveries] == [1]
    core.attach(session, "noise", 9)
    return session


def check_counted(core: NacksDriver) -> None:
    """What was sent of `a` is a dead letter, and the other message comes, with one of the next ticks."""
    for _ in range(3):
        core.settle()
    dead, other = core.session(), core.session()
    core.attach(other, "a", 1)
    assert core.times(other) == [(2, 0)]
    core.attach(dead, "dead", 1)
    assert len(core.take(dead)) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", [False, True])
def test_a_queue_that_is_attached_again_goes_on_in_order(kind: int, ends: bool) -> None:
    """Its messages came back in turns, and what lies behind them was given before that."""
    core = of_many(MESSAGES)
    session = core.session()
    core.attach(session, "q", 1, WINDOW)
    core.pump()
    assert len(session.waiting) == WINDOW
    if ends:
        core.dispatcher.close(session)
        session = core.session()
    else:
        core.dispatcher.detach(session, 1)
    core.attach(session, "q", 2, WINDOW)
    core.dispatcher._pump._next_kind = kind
    assert consumed(core, session) == [(offset, 0) for offset in range(1, MESSAGES + 1)]
    assert not core.dispatcher.registry.leaving
    core.check()


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_behind_a_larger_session_that_ends_and_with_new_messages(kind: int) -> None:
    core = of_many(MESSAGES - 50)
    keys = [f"b{number}" for number in range(300)]
    core.change(declare("large"), bind("large", *keys))
    core.change_all(publish(key, b"y") for key in keys)
    large, session, other = core.session(), core.session(), core.session()
    core.attach(large, "large", 1)
    core.attach(session, "q", 1, WINDOW)
    core.pump()
    core.dispatcher.close(large)
    core.dispatcher.close(session)
    core.attach(other, "q", 2, 2 * MESSAGES)
    core.change_all(publish("k", b"x") for _ in range(50))
    core.dispatcher._pump._next_kind = kind
    assert consumed(core, other) == [(offset, 0) for offset in range(1, MESSAGES + 1)]
    assert not core.dispatcher.registry.leaving


def test_a_new_message_does_not_come_before_what_comes_back() -> None:
    """The queue is level with its key, so the new message could be given at once."""
    core = of_many(WINDOW)
    session, other = core.session(), core.session()
    core.attach(session, "q", 1, 2 * WINDOW)
    core.pump()
    core.attach(other, "q", 1, 2 * WINDOW)
    core.dispatcher.detach(session, 1)
    core.change(publish("k", b"new"))
    assert consumed(core, other) == [(offset, 0) for offset in range(1, WINDOW + 2)]


def also_ending(core: CoreDriver) -> Session:
    """Returns a session of another queue that takes many turns to end."""
    session = core.session()
    core.change(declare("other"))
    core.attach(session, "other", 1)
    with_handles(core, session, 1_000)
    return session


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_while_a_session_of_another_queue_ends(kind: int) -> None:
    """That session has nothing out of this queue; what others left of it still comes first."""
    core = of_many(MESSAGES)
    session, unrelated = core.session(), also_ending(core)
    core.attach(session, "q", 1, WINDOW)
    core.pump()
    core.dispatcher.close(unrelated)
    core.dispatcher.detach(session, 1)
    core.attach(session, "q", 2, WINDOW)
    assert core.dispatcher.attaching.closing and core.dispatcher.attaching.returning.walks
    core.dispatcher._pump._next_kind = kind
    assert [offset for offset, _ in consumed(core, session)] == list(range(1, MESSAGES + 1))


def test_a_new_message_does_not_either_while_a_session_of_another_queue_ends() -> None:
    core = of_many(WINDOW)
    session, other, unrelated = core.session(), core.session(), also_ending(core)
    core.attach(session, "q", 1, 2 * WINDOW)
    core.pump()
    core.attach(other, "q", 1, 2 * WINDOW)
    core.dispatcher.close(unrelated)
    core.dispatcher.detach(session, 1)
    core.change(publish("k", b"new"))
    assert core.dispatcher.attaching.closing and core.dispatcher.attaching.returning.walks
    assert consumed(core, other) == [(offset, 0) for offset in range(1, WINDOW + 2)]


def test_what_is_taken_for_another_queue_does_not_count_as_not_sent() -> None:
    """A handle means another queue before all of the first one has come back."""
    core = NacksDriver()
    session = sent_one_of_two(core, "b")
    core.change_all(publish("n", b"x") for _ in range(100))
    core.pump()
    core.dispatcher._pump._next_kind = 0
    core.attach(session, "b", 1)
    core.pump()
    core.settle()
    core.dispatcher.detach(session, 1)
    core.settle()
    check_counted(core)


def test_what_others_had_keeps_no_message_waiting_for_the_rest_of_their_sessions() -> None:
    """Ten sessions of 10,000 handles that ended held a queue of another up for 2 s: it waited until all were gone."""
    core = of_many(0)
    reader = core.session()
    core.attach(reader, "q", 1)
    for _ in range(3):
        session = core.session()
        core.attach(session, "q", 1, 1)
        with_handles(core, session, 300)
    core.change_all(publish("k", b"x") for _ in range(6))
    got = consumed(core, reader)
    streams = [stream for some in core.dispatcher.registry.by_key.values() for stream in some.values()]
    for session in {entry.attachment.session for stream in streams for entry in stream.out}:
        core.dispatcher.close(session)
    core.change(publish("k", b"new"))
    turns = 0
    while not reader.waiting or not any(b"new" in parcel.chunk for parcel in reader.waiting.values()):
        assert core.dispatcher.turn()
        turns += 1
    assert core.dispatcher.attaching.closing, "their sessions are still ending"
    assert turns <= 12
    got += consumed(core, reader)
    assert sorted(offset for offset, _ in got) == list(range(1, 8))


def test_a_feed_that_loses_nothing_is_not_looked_at() -> None:
    """While anybody left any queue, each chunk looked at all that was out of each stream."""
    core = of_many(1)
    session = core.session()
    core.attach(session, "q", 1)
    core.pump()
    leaving, feed = core.dispatcher.registry.leaving, next(iter(core.dispatcher.feeds.values()))
    (stream,) = feed.streams.values()
    other = core.session()
    leaving.session_ends(other)
    assert leaving and leaving.loses(stream) == (False, 1)
    leaving.session_ended(other)
    leaving.session_ends(session)
    assert leaving.loses(stream) == (True, 1)
    leaving.session_ended(session)
    core.ack(session, "k", 1, 2)
    leaving.session_ends(session)
    assert leaving.loses(stream) == (False, 1), "it has nothing out"
    leaving.session_ended(session)
    puller = core.session()
    core.change(publish("k", b"y"))
    core.dispatcher.detach(session, 1)
    core.pump()
    core.change(bind("q", "l"), publish("l", b"z"))
    assert core.pull(puller, "q", 10)
    leaving.session_ends(puller)
    feed = next(iter(core.dispatcher.feeds.values()))
    stream = next(iter(feed.streams.values()))
    assert leaving.loses(stream)[0], "what was pulled is out"
    leaving.session_ended(puller)
    some = [core.session() for _ in range(LEAVING_LOOKS_MAX + 1)]
    for one in some:
        core.attach(one, "q", 1)
        leaving.session_ends(one)
    assert leaving.loses(stream) == (True, 0), "so many are not looked at"
    for one in some:
        leaving.session_ended(one)
    leaving.begin_feed()
    assert leaving and not leaving.loses(stream)[0]
    feed.begin_leave()
    assert leaving.loses(stream) == (True, 0)
    feed.end_leave()
    leaving.end_feed()
    assert not leaving


@pytest.mark.parametrize("third", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_it_does_not_either_where_the_session_ends_or_a_third_queue_has_the_parcel(ends: bool, third: bool) -> None:
    """What the handle's new queue gets joins a parcel that waited for the third one before."""
    core = NacksDriver()
    session = sent_one_of_two(core, "b", "c")
    if third:
        core.attach(session, "c", 2)
    core.pump()
    core.change_all(publish("n", b"x") for _ in range(100))
    core.pump()
    core.dispatcher.detach(session, 1)
    core.attach(session, "b", 1)
    of_b = core.tables.queue_by_name.get(b"b")
    assert of_b is not None
    core.dispatcher.registry.ready.move_to_end(core.dispatcher.feeds[of_b], last=False)
    core.dispatcher._pump._next_kind = 0
    core.dispatcher.turn()
    if ends:
        core.dispatcher.close(session)
    core.settle()
    check_counted(core)


def test_a_queue_stays_in_line_while_parcels_of_a_session_that_ended_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It left the line, and was silent until all of a session of 20,000 queues had come back."""
    monkeypatch.setattr(bringing_back, "LISTED_AT_ONCE_MAX", 3)
    core = of_many(40)
    session, other = core.session(), core.session()
    core.attach(session, "q", 1)
    core.pump()
    with_handles(core, session, 300)
    core.attach(other, "q", 1)
    core.dispatcher.close(session)
    core.change(publish("k", b"new"))
    core.dispatcher._pump._next_kind = turns = 0
    while not other.waiting:
        core.check_served()
        assert core.dispatcher.turn()
        turns += 1
    assert turns < 40 and core.dispatcher.attaching.closing
    assert consumed(core, other) == [(offset, 0) for offset in range(1, 42)]


def test_what_comes_back_from_many_sessions_comes_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 sessions that ended together, with 1,000 parcels each, were one step of 0.3 s."""
    core = of_many(0)
    sessions = [core.session() for _ in range(30)]
    for session in sessions:
        core.attach(session, "q", 1)
        with_handles(core, session, 60)
    core.change_all(publish("k", b"x") for _ in range(600))
    core.pump()
    other = core.session()
    core.attach(other, "q", 1)
    for session in sessions:
        core.dispatcher.close(session)
    listed: list[int] = []
    monkeypatch.setattr(bringing_back, "LISTED_AT_ONCE_MAX", 50)
    monkeypatch.setattr(bringing_back, "PUMP_TURN_HANDLES", 50)
    (stream,) = core.dispatcher.registry.by_key[next(iter(core.dispatcher.registry.by_key))].values()
    while True:
        before = sum(session.not_sent.not_listed for session in sessions), len(stream.out)
        back = bringing_back.bring_back(core.dispatcher.registry, stream)
        listed.append(before[0] - sum(session.not_sent.not_listed for session in sessions))
        assert listed[-1] <= 50 and before[1] - len(stream.out) <= 70
        if back.is_all:
            break
    assert sum(listed) == 600 and len(listed) > 20
    stream.feed.set_lagging(stream)  # As the pump does with one that is to go on.
    core.dispatcher.registry.wake(stream.feed)
    assert consumed(core, other) == [(offset, 0) for offset in range(1, 601)]


def test_a_look_at_what_does_not_come_back_takes_no_turn_from_what_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has room and backlog left the line: looking at it had used its turn up before anything was given."""
    monkeypatch.setattr(filling, "LOOKS_PER_COST", 1_000_000)
    monkeypatch.setattr(bringing_back, "LOOKED_AT_PER_COST", 1)
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.change_all(publish("k", b"x") for _ in range(60))
    reader, ending = core.session(), core.session()
    core.attach(reader, "q", 1, 30)
    core.attach(ending, "q", 1, 1)
    core.pump()
    (stream,) = core.dispatcher.registry.by_key[next(iter(core.dispatcher.registry.by_key))].values()
    core.dispatcher.registry.leaving.session_ends(ending)
    core.deliveries(reader)
    core.ack(reader, "k", 1, 11)
    budget = filling.Budget(100, 1 << 20)
    registry = core.dispatcher.registry
    assert stream.lagging and not filling.fill(
        registry, stream, stream.feed.pick, registry.give, budget, registry.leases.of, registry.give_run
    )
    assert budget.given and budget.spent and reader.waiting, "it gave first, and paid for the look then"
    registry.leaving.session_ended(ending)


def test_a_pull_goes_on_with_a_queue_of_which_more_comes_back_than_a_step_may_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looked at a key twice that has nothing for it, and found nothing where messages were."""
    monkeypatch.setattr(bringing_back, "LISTED_AT_ONCE_MAX", 3)
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k", "l"))
    core.change_all(publish("k", b"x") for _ in range(40))
    session, puller = core.session(), core.session()
    core.attach(session, "q", 1)
    core.pump()
    with_handles(core, session, 300)
    core.change(publish("l", b"done"))
    core.dispatcher.close(session)
    (feed,) = core.dispatcher.registry.feeds.values()
    of_k, of_l = sorted(feed.streams.values(), key=lambda stream: stream.key)
    for stream in (of_l, of_k):
        feed.clear_lagging(stream)
        feed.set_lagging(stream)
    fill = filling.fill
    monkeypatch.setattr(pulling, "fill", lambda r, stream, *rest: stream is not of_l and fill(r, stream, *rest))
    assert [(one.key, one.low) for one in core.pull(puller, "q", 5)] == [(b"k", offset) for offset in range(1, 6)]
