"""Records that create or drop queues which many sessions wait for, or consume: the sessions attach in bounded steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_slice_node.core.dispatch.attaching import Attaching, Begun
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import ATTACHED_PER_STEP, INLINE_STREAMS_MAX, PUMP_TURN_HANDLES

from .core_driver import CoreDriver, bind, declare, drop, publish

NAMES = [f"q{number}" for number in range(100)]
SESSIONS = 20
AT_ONCE_MAX = 50


class Counted:
    """Drives a core whose attaches are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = CoreDriver()
        self.attached = 0
        self.sessions = [self.core.session() for _ in range(SESSIONS)]
        attach = Attaching.attach

        def counted(attaching: Attaching, *of: object) -> Begun:
            self.attached += 1
            return attach(attaching, *of)  # type: ignore[arg-type]

        monkeypatch.setattr(Attaching, "attach", counted)
        for session in self.sessions:
            for handle, name in enumerate(NAMES, 1):
                self.core.attach(session, name, handle)

    def count(self, work: Callable[[], object]) -> int:
        """Returns how many attaches the work makes."""
        before = self.attached
        work()
        return self.attached - before

    def turns(self) -> list[int]:
        """Takes all turns. Returns how many attaches each made."""
        found = []
        while self.core.dispatcher.has_work:
            found.append(self.count(self.core.dispatcher.turn))
        return found

    def consumes(self, session: Session) -> bool:
        return len(session.attachments) == len(NAMES) and not session.awaited


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_a_record_that_creates_many_queues_attaches_a_few_sessions_at_once(counted: Counted) -> None:
    """One of 1,000 queues which 50 sessions wait for made 50,000 attaches in its step: 0.8 s."""
    core = counted.core
    steps = declare(*NAMES), *[bind(name, "k") for name in NAMES], publish("k", b"x")
    assert counted.count(lambda: core.change(*steps)) <= AT_ONCE_MAX
    found = counted.turns()
    assert max(found) <= ATTACHED_PER_STEP and all(map(counted.consumes, counted.sessions))
    assert not core.dispatcher.registry.awaited
    assert sum(len(one.handles) for session in counted.sessions for one in core.deliveries(session)) == len(NAMES)


def test_a_record_that_drops_many_queues_attaches_a_few_sessions_at_once(counted: Counted) -> None:
    """One of 50 queues which 50 sessions consume made 2,500 attaches in its step: 40 ms."""
    core = counted.core
    core.change(declare(*NAMES))
    counted.turns()
    assert counted.count(lambda: core.change(drop(*NAMES[:50]))) <= AT_ONCE_MAX
    assert max(counted.turns()) <= ATTACHED_PER_STEP
    assert all(len(session.awaited) == 50 for session in counted.sessions)
    assert counted.count(lambda: core.change(declare(*NAMES[:50]))) <= AT_ONCE_MAX
    assert max(counted.turns()) <= ATTACHED_PER_STEP
    assert all(map(counted.consumes, counted.sessions))


def test_a_record_that_drops_many_queues_of_many_keys_forgets_a_few_streams_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """900 queues of 60 keys were one step of 71 ms."""
    core, keys, forgotten = CoreDriver(), [f"k{number}" for number in range(60)], [0]
    core.declare(NAMES)
    core.change_all(bind(name, key) for name in NAMES for key in keys)
    session = core.session()
    for handle, name in enumerate(NAMES, 1):
        core.attach(session, name, handle)
    core.pump()
    forget = Registry.forget_stream

    def counted(registry: Registry, stream: Stream) -> None:
        forgotten[-1] += 1
        forget(registry, stream)

    monkeypatch.setattr(Registry, "forget_stream", counted)
    core.change(drop(*NAMES))
    assert 0 < forgotten[0] <= INLINE_STREAMS_MAX
    while core.dispatcher.has_work:
        forgotten.append(0)
        core.dispatcher.turn()
    assert len(forgotten) > 10 and max(forgotten) <= PUMP_TURN_HANDLES
    assert not core.dispatcher.registry.by_key


def test_queues_that_are_not_dropped_after_all_are_attached_in_steps(counted: Counted) -> None:
    """While their drop was being written, they were not here."""
    core, names = counted.core, [name.encode() for name in NAMES]
    core.dispatcher.end_soon(names)
    core.change(declare(*NAMES))
    assert not any(counted.turns()) and not any(session.attachments for session in counted.sessions)
    assert counted.count(lambda: core.dispatcher.no_longer_ending(names)) <= AT_ONCE_MAX
    assert max(counted.turns()) <= ATTACHED_PER_STEP
    assert all(map(counted.consumes, counted.sessions))


def test_what_comes_and_goes_again_and_again_waits_once(counted: Counted) -> None:
    core = counted.core
    for _ in range(5):
        core.change(declare(*NAMES))
        core.change(drop(*NAMES))
    core.change(declare(*NAMES))
    assert len(core.dispatcher.attaching.arriving) <= len(NAMES)
    counted.turns()
    assert all(map(counted.consumes, counted.sessions))


def test_a_few_sessions_attach_at_once(counted: Counted) -> None:
    """What was published in the same record is on its way when the record is done."""
    core = counted.core
    core.change(declare(NAMES[0]), bind(NAMES[0], "k"), publish("k", b"x"))
    assert all(1 in session.attachments for session in counted.sessions)
    assert not core.dispatcher.attaching.arriving
