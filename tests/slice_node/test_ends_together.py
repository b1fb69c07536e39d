"""Sessions that end together: each is small, and is done with at once where it ends alone; of thousands only some are,
between two turns of the pump."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import AT_ONCE_BETWEEN_TURNS_MAX, INLINE_STREAMS_MAX, PUMP_TURN_BINDINGS

from .core_driver import CoreDriver, bind, declare, publish

SESSIONS = 70
KEYS = [f"k{number}" for number in range(30)]
QUEUES = 3


def consumers(core: CoreDriver) -> list[Session]:
    """Sessions with a few queues each, all of which have a message of each key out."""
    sessions = [core.session() for _ in range(SESSIONS)]
    for number, session in enumerate(sessions):
        names = [f"q{number}-{queue}" for queue in range(QUEUES)]
        core.change(declare(*names), *(bind(name, *KEYS) for name in names))
        for handle, name in enumerate(names, 1):
            assert core.attach(session, name, handle)
    core.pump()
    core.change(*(publish(key, b"x") for key in KEYS))
    core.pump()
    for session in sessions:
        core.take(session)
    assert all(session.owed == QUEUES * len(KEYS) for session in sessions)
    return sessions


def work_left(core: CoreDriver, sessions: list[Session]) -> int:
    """What is still to be taken back, and to be forgotten."""
    return sum(session.owed for session in sessions) + sum(len(feed.streams) for feed in core.dispatcher.feeds.values())


def test_sessions_that_end_together_are_done_with_in_turns() -> None:
    """1,520 of them held a node for 5 s: each did as much at once as one may."""
    core = CoreDriver()
    sessions = consumers(core)
    before = work_left(core, sessions)
    for session in sessions:
        core.dispatcher.close(session)
    at_once = before - work_left(core, sessions)
    assert 0 < at_once <= AT_ONCE_BETWEEN_TURNS_MAX + 2 * INLINE_STREAMS_MAX
    steps = []
    while core.dispatcher.has_work:
        left = work_left(core, sessions)
        assert core.dispatcher.turn()
        steps.append(left - work_left(core, sessions))
    assert max(steps) <= AT_ONCE_BETWEEN_TURNS_MAX + 2 * INLINE_STREAMS_MAX
    assert not core.dispatcher.feeds and not core.dispatcher.attaching.closing
    assert not any(session.owed or session.by_queue for session in sessions)
    assert len(steps) < before // 20


@pytest.mark.parametrize("number", [1, 2])
def test_a_session_that_ends_alone_is_done_with_at_once(number: int) -> None:
    core = CoreDriver()
    sessions = consumers(core)
    for session in sessions[:number]:
        core.dispatcher.close(session)
        assert not session.owed and not session.by_queue
        assert not core.dispatcher.attaching.closing and not core.dispatcher.attaching.returning.walks
        core.dispatcher.turn()


def test_queues_that_are_detached_together_come_back_in_turns() -> None:
    core = CoreDriver()
    sessions = consumers(core)
    before = work_left(core, sessions)
    for session in sessions:
        for handle in range(1, QUEUES + 1):
            core.dispatcher.detach(session, handle)
    assert before - work_left(core, sessions) <= AT_ONCE_BETWEEN_TURNS_MAX + 2 * INLINE_STREAMS_MAX
    core.pump()
    assert not any(session.owed for session in sessions) and not core.dispatcher.feeds


def test_a_turn_closes_many_small_sessions_and_not_more_than_it_may() -> None:
    core = CoreDriver()
    sessions = consumers(core)
    for session in sessions:
        core.dispatcher.close(session)
    closing = core.dispatcher.attaching.closing
    before = len(closing)
    core.dispatcher.attaching.close_turn(PUMP_TURN_BINDINGS)
    assert PUMP_TURN_BINDINGS // (QUEUES + 1) <= before - len(closing) <= PUMP_TURN_BINDINGS // QUEUES
