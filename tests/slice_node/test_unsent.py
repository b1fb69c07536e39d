"""What never left the node was not delivered: it comes back uncounted, and its ack timeout does not run yet."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import timeouts
from shoal_slice_node.core.dispatch.not_sent import Found, NotSent
from shoal_slice_node.core.dispatch.pulling import PullAnswer
from shoal_slice_node.core.dispatch.served import serve, silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACKED_PER_STEP, PUMP_TURN_HANDLES
from shoal_slice_node.core.node import requests, settling
from shoal_slice_node.core.turns import Source, finish

from .core_driver import bind, declare, publish, purge, unbind
from .nacks_driver import TIMEOUT_MS, NacksDriver
from .unsent_steps import attached, declared, leave


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "dead"))
    return core


def sent(core: NacksDriver, session: Session) -> list[tuple[int, int]]:
    """What the transport takes in one go: offset and `redelivered`."""
    taken = core.dispatcher.take(session, 1)
    core.dispatcher.sent(session, taken.cost_bytes)
    return [(offset, one.redelivered) for one in taken.deliveries for offset in range(one.low, one.to)]


def test_what_a_session_never_got_counts_as_never_delivered(core: NacksDriver) -> None:
    declared(core, "q")
    core.change(bind("q", "k"), *[publish("k", b"x")] * 5)
    for _ in range(4):
        leave(core, attached(core))
    assert core.state.counters.deliveries == 0
    assert core.times(attached(core)) == [(offset, 0) for offset in range(1, 6)]
    assert core.take(attached(core, "dead")) == []


def test_of_what_a_session_had_only_what_was_sent_counts(core: NacksDriver) -> None:
    declared(core, "q", max_deliveries=2)
    core.change(bind("q", "k"), *[publish("k", b"x")] * 4)
    for n in range(2):
        session = attached(core)
        assert sent(core, session) == [(1, n)]
        leave(core, session)
    assert [offset for offset, _ in core.times(attached(core))] == [2, 3, 4]
    assert [key for key, _, _ in core.take(attached(core, "dead"))] == ["dead"]
    core.check()


def test_a_queue_that_is_detached_before_its_parcels_leave_counts_none(core: NacksDriver) -> None:
    """The session goes on, and what is detached is taken out of its parcels before the rest is sent."""
    declared(core, "q", "other")
    core.change(bind("q", "k"), bind("other", "k"), publish("k", b"x", b"y"))
    session = attached(core)
    assert core.attach(session, "other", handle=2)
    core.pump()
    core.dispatcher.detach(session, 1)
    taken = core.dispatcher.take(session, 1 << 20)
    core.dispatcher.sent(session, taken.cost_bytes)
    assert [list(one.handles) for one in taken.deliveries] == [[2]]
    core.settle()
    assert core.times(attached(core)) == [(1, 0), (2, 0)]


def test_a_large_queue_that_is_detached_in_turns_counts_none(core: NacksDriver) -> None:
    """Its parcels are taken out before all of its bindings were looked at."""
    keys = [f"k{number}" for number in range(3 * PUMP_TURN_HANDLES)]
    declared(core, "q", "other")
    core.change_all(bind("q", key) for key in keys)
    core.change(bind("other", "k0"))
    session = attached(core)
    assert core.attach(session, "other", handle=2)
    core.pump()
    core.change_all(publish(key, b"x") for key in keys)
    core.pump()
    core.dispatcher.detach(session, 1)
    assert [offset for offset, _ in sent(core, session)] == [1], "the other queue's, once what was detached is out"
    core.settle()
    core.pump()
    assert set(core.times(attached(core))) == {(1, 0)}


def test_a_nack_of_what_was_not_sent_changes_nothing(core: NacksDriver) -> None:
    declared(core, "q", max_deliveries=2)
    core.change(bind("q", "k"), *[publish("k", b"x")] * 3)
    session = attached(core)
    assert sent(core, session) == [(1, 0)]
    core.nack(session, 1, 4)
    core.settle()
    assert core.times(session) == [(2, 0), (3, 0), (1, 1)]


@pytest.mark.parametrize("max_deliveries", [0, 2])
def test_an_ack_timeout_begins_when_a_message_is_sent(core: NacksDriver, max_deliveries: int) -> None:
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS, max_deliveries=max_deliveries)
    core.change(bind("q", "k"), publish("k", b"x"))
    session = attached(core)
    core.wait(TIMEOUT_MS - 1000)
    assert core.times(session) == [(1, 0)]
    core.wait(TIMEOUT_MS - 1000)
    assert core.times(session) == [], "the client has it for less than the timeout"
    core.wait(2000)
    assert core.times(session) == [(1, 1)]


def test_what_waits_for_a_session_that_does_not_read_goes_to_another_uncounted(core: NacksDriver) -> None:
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS, max_deliveries=1)
    core.change(bind("q", "k"), *[publish("k", b"x")] * 3)
    hung = attached(core)
    assert sent(core, hung) == [(1, 0)]
    reader = core.session()
    assert core.attach(reader, "q")
    core.wait(TIMEOUT_MS + 200)
    assert len(core.times(reader)) + sum(parcel.to - parcel.low for parcel in hung.waiting.values()) == 2
    core.wait(2 * TIMEOUT_MS + 200)
    assert {offset for offset, _ in core.times(attached(core, "dead"))} >= {1}, "it was sent, once, and never acked"
    core.dispatcher.close(hung)
    core.settle()
    core.check()


def test_a_session_that_never_reads_does_not_pile_up_what_comes_back(core: NacksDriver) -> None:
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("q", "k", "l"), publish("k", *[b"x"] * 10), publish("l", b"y"))
    session = attached(core)
    for _ in range(5):
        core.wait(TIMEOUT_MS + 200)
        core.pump()
        assert not session.waiting and session.under_way_bytes == session.owed == 0, "it is given nothing"
    assert len(session.leases) <= 1
    assert core.state.counters.deliveries == 0
    assert sorted(core.times(session)) == [(1, 0), *((offset, 0) for offset in range(1, 11))]
    core.wait(100)
    assert not session.leases


@pytest.mark.parametrize("change", [purge("q"), unbind("q", "k", discard=True)])
def test_a_backlog_that_goes_while_it_waits_for_a_session_leaves_nothing(core: NacksDriver, change: wire.Step) -> None:
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("q", "k"), publish("k", b"x", b"y"))
    session = attached(core)
    core.change(change)
    core.wait(3 * TIMEOUT_MS)
    leave(core, session)
    assert core.times(attached(core)) == []
    assert not core.dispatcher.registry.timeouts.ending
    core.check()


def test_leases_of_many_keys_end_in_turns(core: NacksDriver) -> None:
    keys = [f"k{number}" for number in range(3 * PUMP_TURN_HANDLES)]
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS, max_deliveries=0)
    core.change_all(bind("q", key) for key in keys)
    session = core.session(1 << 26)
    assert core.attach(session, "q", messages=10_000)
    core.change_all(publish(key, b"x") for key in keys)
    assert len(core.times(session)) == len(keys)
    core.now_ms += 100
    core.node.tick(core.now_ms, core.wall_ms)
    core.now_ms += TIMEOUT_MS
    core.node.tick(core.now_ms, core.wall_ms)
    attachment = session.attachments[1]
    assert attachment.messages == len(keys), "a tick only lines the lease up"
    core.dispatcher.registry.timeouts.turn(10)
    assert attachment.messages == len(keys) - 10
    core.settle()
    assert len(core.times(session)) == len(keys)


def timed_streams(core: NacksDriver, messages: int, every_ms: int = 0) -> Session:
    """A session that reads nothing; its queue's messages come one by one."""
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS, max_deliveries=0)
    core.change(bind("q", "k"))
    session = attached(core)
    for _ in range(messages):
        core.change(publish("k", b"x"))
        core.pump()
        core.wait(every_ms)
    return session


def test_the_only_consumer_gets_what_was_taken_back_in_order(core: NacksDriver) -> None:
    session = timed_streams(core, 20, every_ms=TIMEOUT_MS // 10)
    assert core.times(session) == [(offset, 0) for offset in range(1, 21)]


def test_a_session_that_reads_while_it_is_taken_back_gets_it_in_order(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "WITHDRAWN_PER_STEP", 3)
    session = timed_streams(core, 20, every_ms=50)
    core.now_ms += TIMEOUT_MS + 100
    core.node.tick(core.now_ms, core.wall_ms)
    got = []
    while core.dispatcher.registry.timeouts.ending:
        core.dispatcher.registry.timeouts.turn(1)
        got += sent(core, session)
        core.change(publish("k", b"y"))
    got += core.times(session)
    assert len(got) > 20 and got == [(offset, 0) for offset in range(1, len(got) + 1)]


def test_a_session_that_reads_between_two_steps_of_taking_back_gets_it_in_order(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets nothing new until all of it is back: what came later would come first."""
    monkeypatch.setattr(timeouts, "WITHDRAWN_PER_STEP", 3)
    session = timed_streams(core, 20, every_ms=50)
    core.now_ms += TIMEOUT_MS + 100
    core.node.tick(core.now_ms, core.wall_ms)
    got = []
    while core.dispatcher.registry.timeouts.ending:
        core.dispatcher.registry.timeouts.turn(1)
        got += sent(core, session)
        core.dispatcher.reads(session)
        core.change(publish("k", b"y"))
        for kind, step in core.dispatcher._pump._kinds:
            while kind and kind is not core.dispatcher.registry.timeouts.ending:
                step()
    got += core.times(session)
    assert len(got) > 20 and got == [(offset, 0) for offset in range(1, len(got) + 1)]


def test_taking_back_stops_within_a_stream_and_is_not_repeated(core: NacksDriver) -> None:
    """Neighbouring offsets are one stretch: what counts is their parcels."""
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS, max_deliveries=0)
    core.change(bind("q", "k"))
    session = core.session(1 << 26)
    assert core.attach(session, "q", messages=10_000)
    core.change_all(publish("k", b"x") for _ in range(4 * PUMP_TURN_HANDLES))
    core.pump()
    core.wait(TIMEOUT_MS - 100)
    before = len(session.waiting)
    while not core.dispatcher.registry.timeouts.ending:
        core.now_ms += 100
        core.node.tick(core.now_ms, core.wall_ms)
    turns = 0
    while core.dispatcher.registry.timeouts.ending:
        core.dispatcher.registry.timeouts.turn(PUMP_TURN_HANDLES)
        assert before - len(session.waiting) <= PUMP_TURN_HANDLES + 100
        before, turns = len(session.waiting), turns + 1
    core.pump()
    assert turns >= 4 and not session.waiting and session.number in core.dispatcher.dirty
    for _ in range(3):
        core.wait(TIMEOUT_MS + 200)
        core.pump()
        assert not session.waiting, "it is given nothing until it reads"
    assert len(core.times(session)) == 4 * PUMP_TURN_HANDLES


def test_what_was_taken_back_is_there_for_a_pull_and_for_a_session_that_comes(core: NacksDriver) -> None:
    hung = timed_streams(core, 4)
    core.wait(TIMEOUT_MS + 200)
    assert [one.low for one in core.pull(core.session(), "q", 2)] == [1, 2]
    reader = attached(core)
    assert core.times(reader) == [(3, 0), (4, 0)]
    core.change(publish("k", b"x"), publish("k", b"x"))
    core.dispatcher.close(reader)
    core.settle()
    assert {offset for offset, _ in core.times(hung)} >= {3, 4, 5, 6}, "it reads again"


def test_a_session_that_ends_while_it_is_taken_back_counts_none(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "WITHDRAWN_PER_STEP", 3)
    for detaches in (False, True):
        core.restart()
        session = attached(core) if detaches else timed_streams(core, 10)
        core.wait(100)
        core.now_ms += TIMEOUT_MS + 100
        core.node.tick(core.now_ms, core.wall_ms)
        core.dispatcher.registry.timeouts.turn(1)
        core.dispatcher.registry.timeouts.turn(1)
        assert core.dispatcher.registry.timeouts.ending and 0 < len(session.waiting) < 10
        if detaches:
            core.dispatcher.detach(session, 1)
        leave(core, session)
        other = attached(core)
        assert core.times(other) == [(offset, 0) for offset in range(1, 11)]
    core.check()


def test_a_pause_that_nothing_would_end_is_found_and_ended(core: NacksDriver) -> None:
    """The check of silence took a paused attachment for one whose window is full."""
    declared(core, "q", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("q", "k"))
    session = attached(core)
    core.change(publish("k", b"x"), publish("k", b"y"))
    core.pump()
    core.wait(TIMEOUT_MS + 300)
    feeds = list(core.dispatcher.feeds.values())
    assert len(session.paused) == 1 and not list(silent_streams(core.dispatcher, feeds))
    session.paused.clear()
    found = list(silent_streams(core.dispatcher, feeds))
    assert [one.reason for one in found] == [f"session {session.number} was paused, and nothing will end the pause"]
    serve(core.dispatcher, found[0])
    assert not list(silent_streams(core.dispatcher, feeds))
    core.dispatcher.reads(session)
    core.dispatcher.registry.roomy.clear()
    found = list(silent_streams(core.dispatcher, feeds))
    assert [one.reason for one in found] == [f"session {session.number} reads again, and its pauses are not ended"]
    serve(core.dispatcher, found[0])
    core.pump()
    assert not list(silent_streams(core.dispatcher, feeds))
    assert [offset for offset, _ in core.times(session)] == [1, 2]


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("low", [1, 1_000])
def test_a_nack_looks_at_no_more_of_what_was_not_sent_than_it_names(
    low: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each listed all of it: a frame of 44 KB took the processor for half a minute, in steps of 1.5 s."""
    core = NacksDriver()
    looks: list[int] = []
    core.change(declare("q"), bind("q", "k"), *[publish("k", b"x")] * 400)
    session = core.session(1 << 20)
    core.attach(session, "q", 1, 1_000, 1 << 20)
    core.pump()
    between = NotSent.between

    def looked(listed: NotSent, key_id: bytes, first: int, to: int) -> tuple[list[Found], int]:
        found = between(listed, key_id, first, to)
        looks.append(found[1])
        return found

    monkeypatch.setattr(NotSent, "between", looked)
    acks = [wire.Ack(key=b"k", low=one, to=one + 1, handles=[1] * 3) for one in range(low, low + 200)]
    source, nacks = Source(b"c", 1), wire.Nacks(messages=acks, unseen=bool(number), number=number)
    settling.take_nacks(core.node, source, session, nacks, lambda _: None, False)
    steps = 0
    while core.node.turns.busy(source):
        core.node.turns.step()
        steps += 1
    assert max(looks) <= 2 and steps <= 20 + 600 // ACKED_PER_STEP
    core.pump()
    taken = core.take(session)
    assert sorted(offset for _, offset, _ in taken) == list(range(1, 401)), "all of it comes, once"


def test_what_many_handles_of_a_session_were_not_sent_is_listed_in_turns(core: NacksDriver) -> None:
    """One turn listed all of it for each of 200 handles."""
    names = [f"q{number}" for number in range(60)]
    core.change(declare(*names), *[bind(name, "k") for name in names], *[publish("k", b"x")] * 300)
    session = core.session(64 << 20)
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle, 1_000, 1 << 20)
    core.pump()
    assert len(session.waiting) == 300
    core.dispatcher.close(session)
    attaching, turns, longest = core.dispatcher.attaching, 0, 0
    while attaching.closing:
        attaching.close_turn(200)
    assert len(attaching.returning.walks) == 60, "none was taken back at once"
    while attaching.returning.walks:
        left = len(attaching.returning.walks)
        attaching.returning.turn(PUMP_TURN_HANDLES)
        longest = max(longest, left - len(attaching.returning.walks))
        turns += 1
    other = core.session(64 << 20)
    core.attach(other, "q7", 1, 1_000, 1 << 20)
    assert longest <= 1 and turns >= 60
    assert core.times(other) == [(offset, 0) for offset in range(1, 301)]


def test_a_numbered_nack_of_a_pull_whose_answer_has_not_left_gives_it_back(core: NacksDriver) -> None:
    """It failed inside the slice, and could end the session."""
    core.change(declare("q"), bind("q", "k"), *[publish("k", b"x")] * 3)
    session, answer = core.session(), PullAnswer()
    finish(requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=2), 0, 60_000, answer).whole())
    named = wire.Ack(key=b"k", low=1, to=3, queues=[b"q"])
    core.frame(session, wire.Nacks(messages=[named], unseen=True, number=1))
    answer.left()
    assert core.times(attached(core)) == [(1, 0), (2, 0), (3, 0)]
