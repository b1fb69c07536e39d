"""Sessions that leave a queue with many bindings: what they had comes back in bounded steps, and what that takes does
not grow with the sessions times the bindings."""

from __future__ import annotations

import tracemalloc

import pytest

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import INLINE_STREAMS_MAX, PUMP_TURN_HANDLES

from .core_driver import bind, declare, drop, publish
from .nacks_driver import NacksDriver

BINDINGS = 3_000
SESSIONS = 40


@pytest.fixture
def core() -> NacksDriver:
    """One queue with many bindings, none of which has messages."""
    core = NacksDriver()
    core.change(declare("q"))
    core.change_all(bind("q", f"k{number}") for number in range(BINDINGS))
    return core


def consume(core: NacksDriver, messages: int = 1) -> Session:
    session = core.session()
    assert core.attach(session, "q", messages=messages)
    return session


def turns(core: NacksDriver) -> int:
    """Takes all turns of the pump. Returns how many there were."""
    count = 0
    while core.dispatcher.turn():
        count += 1
    return count


def test_sessions_that_leave_keep_no_list_of_all_bindings_each(core: NacksDriver) -> None:
    """Each kept one until its turn came: 600 sessions of a queue with 95,000 bindings took 446 MiB."""
    core.change(*[publish("k7", b"x")] * SESSIONS)
    sessions = [consume(core) for _ in range(SESSIONS)]
    assert [len(core.take(session)) for session in sessions] == [1] * SESSIONS
    keeper = consume(core)  # The queue stays in memory, and nothing is loaded again.
    core.pump()
    tracemalloc.start()
    for session in sessions:
        core.dispatcher.close(session)
    held_bytes, _ = tracemalloc.get_traced_memory()
    count = turns(core)
    left_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 8 * BINDINGS + 2_000 * SESSIONS and left_bytes < 2_000 * SESSIONS
    assert count < 20, "they share one walk over the bindings"
    assert len(core.take(keeper)) == 1 and not any(session.owed for session in sessions)


def test_a_session_that_attaches_and_leaves_again_and_again_costs_a_few_turns_each_time(core: NacksDriver) -> None:
    """Each time all bindings were looked at, for one message: 60 ms of the processor if they are 95,000."""
    core.change(publish("k7", b"x"))
    consume(core, messages=0)
    session, counts = core.session(), []
    core.pump()
    for _ in range(10):
        assert core.attach(session, "q") and len(core.take(session)) == 1
        core.dispatcher.detach(session, 1)
        counts.append(turns(core))
    assert max(counts[1:]) <= 2, "what came back last is looked at first"
    assert session.owed == 0


def test_what_leaves_while_others_are_taken_back_comes_back_too(core: NacksDriver) -> None:
    keys = [f"k{number}" for number in range(0, BINDINGS, 100)]
    core.change(*[publish(key, b"x", b"y") for key in keys])
    sessions = [consume(core, messages=7) for _ in range(9)]
    had = [message for session in sessions for message in core.take(session)]
    assert sorted(had) == sorted((key, offset, body) for key in keys for offset, body in ((1, b"x"), (2, b"y")))
    for session in sessions:
        core.dispatcher.close(session)
        core.dispatcher.turn()
    assert turns(core) > 1
    assert not core.dispatcher.feeds, "nothing consumes the queue, and nothing of it is out"
    assert not any(session.owed for session in sessions)
    other = consume(core, messages=1_000)
    again = core.take(other)
    assert sorted(again) == sorted(had)
    assert [offset for key, offset, _ in again if key == "k100"] == [1, 2]


def test_a_queue_that_is_dropped_while_messages_come_back_is_forgotten(core: NacksDriver) -> None:
    core.change(*[publish(f"k{number}", b"x") for number in range(0, BINDINGS, 50)])
    session = consume(core, messages=1_000)
    assert len(core.take(session)) == BINDINGS // 50
    core.dispatcher.close(session)
    core.dispatcher.turn()
    core.change(drop("q"))
    core.settle()
    assert not core.dispatcher.feeds and not core.dispatcher.has_work and session.owed == 0


def test_one_step_takes_back_some_of_what_many_sessions_have_of_one_binding(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.change_all([publish("k7", b"x")] * 2_000)
    sessions = [consume(core, messages=2) for _ in range(1_000)]
    for session in sessions:
        core.take(session)
    assert sum(session.owed for session in sessions) >= 1_000
    for session in sessions:
        core.dispatcher.close(session)
    steps, looked_at = [], []
    take_all_back = Stream.take_all_back

    def counted(stream: Stream, *of: object) -> object:
        looked_at.append(len(stream.out))
        return take_all_back(stream, *of)  # type: ignore[arg-type]

    monkeypatch.setattr(Stream, "take_all_back", counted)
    owed = sum(session.owed for session in sessions)
    assert owed >= 1_000
    while core.dispatcher.turn():
        before, owed = owed, sum(session.owed for session in sessions)
        steps.append(before - owed)
    assert owed == 0 and max(steps) < PUMP_TURN_HANDLES + 2
    assert sum(looked_at) <= 10_000, "not all that is out again for each session"


def test_a_few_streams_are_listed_before_all_are(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """To list all of 95,000 takes 2 ms, each time that a session leaves with what is found at once."""
    core.change(publish("k7", b"x"))
    consume(core, messages=0)
    session = core.session()
    core.pump()
    listed: list[int] = []
    whole = Feed.last_streams

    def counted(feed: Feed, count_max: int) -> list[bytes]:
        found = whole(feed, count_max)
        listed.append(len(found))
        return found

    monkeypatch.setattr(Feed, "last_streams", counted)
    for _ in range(2):
        assert core.attach(session, "q") and len(core.take(session)) == 1
        core.dispatcher.detach(session, 1)
        turns(core)
    assert listed[:2] == [INLINE_STREAMS_MAX, BINDINGS], "it was not among the few"
    assert listed[2:] == [INLINE_STREAMS_MAX], "it was"
