"""Sessions that end together, and queues that are detached together: what is done at once for all of them, until the
pump has a turn, is bounded; the rest has turns."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import AT_ONCE_MAX, INLINE_STREAMS_MAX, PUMP_TURN_BINDINGS, PUMP_TURN_HANDLES

from .core_driver import bind, declare, publish
from .nacks_driver import NacksDriver

SESSIONS = 20
QUEUES = 5
KEYS = [f"k{number}" for number in range(30)]
MOST = AT_ONCE_MAX + INLINE_STREAMS_MAX


@pytest.fixture
def core() -> NacksDriver:
    """A message in each of 3,000 bindings of small queues."""
    core = NacksDriver()
    for session in range(SESSIONS):
        core.change(*(step for queue in names(session) for step in (declare(queue), bind(queue, *KEYS))))
    core.change_all([publish(key, b"x") for key in KEYS])
    return core


def names(session: int) -> list[str]:
    return [f"q{session}.{number}" for number in range(QUEUES)]


def consume(core: NacksDriver, number: int) -> Session:
    session = core.session()
    for handle, queue in enumerate(names(number), 1):
        core.attach(session, queue, handle, messages=1_000)
    core.pump()
    return session


class Work:
    """Counts streams taken back from, and streams forgotten."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = self.of_step = 0
        forget, back = Registry.forget_stream, Stream.take_all_back

        def forgetting(registry: Registry, stream: Stream) -> None:
            self.done += 1
            forget(registry, stream)

        def taking(stream: Stream, *of: object) -> object:
            self.done += 1
            return back(stream, *of)  # type: ignore[arg-type]

        monkeypatch.setattr(Registry, "forget_stream", forgetting)
        monkeypatch.setattr(Stream, "take_all_back", taking)

    def take(self) -> int:
        done, self.done = self.done, 0
        return done


def finish(core: NacksDriver, work: Work) -> int:
    """Takes all turns of the pump. Returns the most that one did."""
    most = 0
    while core.dispatcher.turn():
        most = max(most, work.take())
    return most


def test_sessions_that_end_together_are_closed_in_turns(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,520 sessions held the node for 5 s."""
    sessions = [consume(core, number) for number in range(SESSIONS)]
    had = [sorted(core.take(session)) for session in sessions]
    assert [session.owed for session in sessions] == [QUEUES * len(KEYS)] * SESSIONS
    work = Work(monkeypatch)
    for session in sessions:
        core.dispatcher.close(session)
    assert 0 < work.take() <= MOST, "of 6,000"
    assert finish(core, work) <= MOST + PUMP_TURN_HANDLES
    assert not core.dispatcher.feeds and not core.dispatcher.by_key and not any(session.owed for session in sessions)
    again = [sorted(core.take(consume(core, number))) for number in range(SESSIONS)]
    assert again == had


def test_once_some_wait_all_that_end_wait(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what closes a thousand goes on at the pump's pace: the commit loop did, and applied nothing meanwhile."""
    sessions = [consume(core, number) for number in range(SESSIONS)]
    for session in sessions:
        core.take(session)
    *others, last = sessions
    for session in others:
        core.dispatcher.close(session)
    assert core.dispatcher.attaching.closing
    core.dispatcher.registry.at_once.renew()
    work = Work(monkeypatch)
    core.dispatcher.close(last)
    assert work.take() == 0 and last.by_queue and core.dispatcher.attaching.closing[-1] is last
    finish(core, work)
    assert not last.by_queue


def test_a_session_that_ends_alone_is_closed_at_once(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(SESSIONS):
        session = consume(core, number)
        core.take(session)
        core.dispatcher.close(session)
        assert not session.owed and not session.by_queue and not core.dispatcher.feeds
        core.dispatcher.turn()


def test_time_alone_lets_more_be_done_at_once(core: NacksDriver) -> None:
    core.dispatcher.registry.at_once.spend(AT_ONCE_MAX)
    core.dispatcher.tick(core.now_ms)
    session = consume(core, 0)
    core.dispatcher.registry.at_once.spend(AT_ONCE_MAX)
    core.dispatcher.tick(core.now_ms)
    core.dispatcher.close(session)
    assert not session.by_queue


def test_queues_that_are_detached_together_come_back_in_turns(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [consume(core, number) for number in range(SESSIONS)]
    had = [sorted(core.take(session)) for session in sessions]
    work = Work(monkeypatch)
    for session in sessions:
        for handle in range(1, QUEUES + 1):
            core.dispatcher.detach(session, handle)
    assert 0 < work.take() <= MOST
    assert finish(core, work) <= MOST + PUMP_TURN_HANDLES
    assert not core.dispatcher.feeds and not any(session.owed for session in sessions)
    assert [sorted(core.take(consume(core, number))) for number in range(SESSIONS)] == had


def test_a_session_with_many_small_queues_is_closed_in_bounded_turns(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn detached up to 200 queues, and forgot at once all streams of each."""
    session = core.session()
    queues = [queue for number in range(SESSIONS) for queue in names(number)]
    assert len(queues) <= PUMP_TURN_BINDINGS
    for handle, queue in enumerate(queues, 1):
        core.attach(session, queue, handle, messages=0)
        core.pump()
    work = Work(monkeypatch)
    core.dispatcher.close(session)
    assert finish(core, work) <= MOST + PUMP_TURN_HANDLES
    assert not core.dispatcher.feeds and not core.dispatcher.by_key


def test_queues_that_are_attached_together_are_loaded_in_turns(core: NacksDriver) -> None:
    session = core.session()
    for handle, queue in enumerate((queue for number in range(SESSIONS) for queue in names(number)), 1):
        core.attach(session, queue, handle, messages=1_000)
    assert 0 < sum(len(feed.streams) for feed in core.dispatcher.feeds.values()) <= MOST
    core.pump()
    assert sum(len(feed.streams) for feed in core.dispatcher.feeds.values()) == SESSIONS * QUEUES * len(KEYS)


def test_sessions_that_end_together_leave_the_order_of_a_queue_as_it_was(core: NacksDriver) -> None:
    """What they had comes before what is newer, though only some of them had their turn."""
    core.change(declare("shared"), bind("shared", "s"))
    core.change_all([publish("s", b"%d" % number) for number in range(60)])
    sessions = [core.session() for _ in range(30)]
    for session in sessions:
        core.attach(session, "shared", messages=2)
        core.take(session)
    core.dispatcher.registry.at_once.spend(AT_ONCE_MAX)
    for session in sessions:
        core.dispatcher.close(session)
    assert core.dispatcher.attaching.closing
    core.change(publish("s", b"new"))
    other = core.session()
    core.attach(other, "shared", messages=1_000)
    core.pump()
    assert [offset for _, offset, _ in core.take(other)] == list(range(1, 62))
