"""A queue that is a member of very many watched keys holds nothing up: what happens to it is taken in in turns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.watching.limits import (
    CHANGES_PER_STEP_MAX,
    FORGOTTEN_PER_TICK_MAX,
    MEMBER_BYTES,
    PRESENCE_AT_ONCE_MAX,
    REMEMBER_MS,
    SNAPSHOT_PAUSE_MS,
    WATCH_BYTES,
)
from shoal_slice_node.core.watching.watched_key import WatchedKey
from shoal_slice_node.core.watching.watched_prefix import WatchedPrefix
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, unbind
from tests.slice_node.told_watch import ToldWatch, settle

QUEUES, KEYS = 60, 120


class Steps:
    """Counts what is done in one step of the node, in watched keys and prefixes. `most`: the largest step."""

    def __init__(self, core: CoreDriver) -> None:
        self.core = core
        self.done = self.most = 0

    def ended(self) -> None:
        self.most, self.done = max(self.most, self.done), 0

    def turns(self) -> None:
        self.ended()
        while self.core.node.turn():
            self.ended()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    found = Steps(CoreDriver())
    for kind, name in (WatchedKey, "left"), (WatchedKey, "attached"), (WatchedPrefix, "changed"):
        real = getattr(kind, name)

        def counted(*arguments: object, real: object = real) -> object:
            found.done += 1
            return real(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(kind, name, counted)
    yield found


def watched_keys(core: CoreDriver) -> list[ToldWatch]:
    """Each key has all queues as members."""
    names = [f"q{number}" for number in range(QUEUES)]
    core.declare(names)
    keys = [f"k{number}" for number in range(KEYS)]
    for name in names:
        core.change(bind(name, *keys))
    watches = [ToldWatch(core, key=key, connection=key) for key in keys]
    settle(core)
    for watch in watches:
        watch.take()
        assert watch.members == dict.fromkeys(names, False)
    return watches


def test_one_record_that_drops_members_of_many_watched_keys(steps: Steps) -> None:
    core = steps.core
    watches = watched_keys(core)
    steps.done = 0
    core.change(drop(*(f"q{number}" for number in range(QUEUES - 1))))
    late = ToldWatch(core, key="k0", connection="late")
    assert 0 < steps.done <= CHANGES_PER_STEP_MAX
    core.change(declare("q1"), bind("q1", "k7"))
    steps.turns()
    assert 0 < steps.most <= CHANGES_PER_STEP_MAX
    settle(core)
    for number, watch in enumerate((*watches, late)):
        watch.take()
        assert watch.members == {f"q{QUEUES - 1}": False} | ({"q1": False} if number == 7 else {})
    for watch in (*watches, late):
        watch.leave()
    settle(core, REMEMBER_MS + 1)
    settle(core)
    assert core.dispatcher.shares.attached.used_bytes == 0 and core.state.interest.members is None


def attach_all(core: CoreDriver) -> Session:
    session = core.session()
    for number in range(QUEUES):
        assert core.attach(session, f"q{number}", handle=number + 1)
    return session


def test_sessions_that_attach_members_of_many_watched_keys(steps: Steps) -> None:
    core = steps.core
    watches = watched_keys(core)
    steps.done = 0
    session = attach_all(core)
    assert steps.done <= QUEUES * PRESENCE_AT_ONCE_MAX
    steps.turns()
    assert 0 < steps.most <= CHANGES_PER_STEP_MAX
    core.dispatcher.detach(session, 1)
    other = core.session()
    core.attach(other, "q0", handle=1)  # Back before it was told that it left.
    core.dispatcher.close(session)
    core.pump()
    steps.turns()
    assert steps.most <= CHANGES_PER_STEP_MAX
    settle(core)
    for watch in watches:
        watch.take()
        assert watch.members == {f"q{number}": number == 0 for number in range(QUEUES)}


def test_prefixes_of_many_lengths_hear_of_consumed_keys_in_turns(steps: Steps) -> None:
    core = steps.core
    core.change(declare("q"))
    keys = [f"key/{number}" for number in range(300)]
    core.change(bind("q", *keys))
    watches = [ToldWatch(core, prefix="key/"[:length], connection=str(length)) for length in range(5)]
    settle(core)
    for watch in watches:
        watch.take()
    steps.done = 0
    core.attach(core.session(), "q")
    steps.turns()
    assert steps.most <= CHANGES_PER_STEP_MAX + len(watches)
    settle(core)
    for watch in watches:
        settle(core)
        watch.take()
        assert watch.counts == dict.fromkeys(keys, (1, 1))


def test_more_consumed_keys_than_may_wait_are_told_by_a_snapshot(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.COUNTS_WAITING_MAX", 100)
    core = steps.core
    core.change(declare("q"))
    keys = [f"key/{number}" for number in range(300)]
    core.change(bind("q", *keys))
    watches = [ToldWatch(core, prefix="key/"[:length], connection=str(length)) for length in range(5)]
    settle(core)
    for watch in watches:
        watch.take()
    core.attach(core.session(), "q")
    assert core.node.watching._line._counted <= 100
    for watch in watches:
        core.now_ms += SNAPSHOT_PAUSE_MS
        settle(core)
        watch.take()
        assert watch.counts == dict.fromkeys(keys, (1, 1))


def test_what_happens_to_watched_keys_faster_than_it_is_taken_in_is_looked_up_anew(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was kept without a bound: 25 MB a second."""
    core, line = steps.core, steps.core.node.watching._line
    watches = watched_keys(core)
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.MEMBER_CHANGES_WAITING_MAX", 300)
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 10)
    names, keys = [f"q{number}" for number in range(QUEUES)], [f"k{number}" for number in range(KEYS)]
    for name in names[:20]:
        core.change(unbind(name, *keys))
        core.change(bind(name, *keys[:100]))
        assert len(line._events) <= 300
    core.change(drop(names[59], names[58]))
    core.change(declare(names[58]), bind(names[58], *keys))
    steps.turns()
    settle(core)
    for number, watch in enumerate(watches):
        watch.take()
        left = {names[59], *(names[:20] if number >= 100 else ())}
        assert watch.members == {name: False for name in names if name not in left}
        watch.leave()
    settle(core, REMEMBER_MS + 1)
    for _ in range(QUEUES * KEYS // FORGOTTEN_PER_TICK_MAX + 1):
        settle(core)
    assert core.dispatcher.shares.attached.used_bytes == 0 and core.state.interest.members is None


def test_counts_that_change_faster_than_they_are_taken_in_are_told_by_a_snapshot(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.COUNTS_WAITING_MAX", 100)
    core, line = steps.core, steps.core.node.watching._line
    core.change(declare("q"))
    keys = [f"key/{number}" for number in range(900)]
    watches = [
        ToldWatch(core, prefix="key/"[:length], presence=presence, connection=str(length))
        for length in range(5)
        for presence in (True, False)
    ]
    settle(core)
    steps.done = 0
    for _ in range(5):
        for step in bind("q", *keys), unbind("q", *keys[300:]):
            core.change(step)
            steps.ended()
            assert line._counted <= 100
    steps.turns()
    assert steps.most <= CHANGES_PER_STEP_MAX + len(watches)
    for watch in watches:
        core.now_ms += SNAPSHOT_PAUSE_MS
        settle(core)
        watch.take()
        assert {key: bound for key, (bound, _) in watch.counts.items() if bound} == dict.fromkeys(keys[:300], 1)


def test_a_queue_that_leaves_while_its_join_waits_is_not_told_as_a_member_for_ever(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = steps.core
    watch = ToldWatch(core, key="k")
    settle(core)
    watch.take()
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 1)
    core.change(declare("a", "b", "c"), bind("a", "k"), bind("b", "k"), bind("c", "k"))
    core.change(drop("b"), unbind("c", "k"))
    assert core.node.watching.has_turns
    steps.turns()
    settle(core)
    watch.take()
    assert watch.members == {"a": False}
    assert core.dispatcher.shares.attached.used_bytes < WATCH_BYTES + 3 * MEMBER_BYTES


def test_a_queue_that_is_declared_anew_while_changes_wait_is_a_member_once(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited of its former life was taken in behind the look-up of the new one: the last word was that it left."""
    core = steps.core
    other = ToldWatch(core, key="k")
    settle(core)
    other.take()
    session = core.session()
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 1)
    core.change(declare("x", "y", "a"), bind("x", "k"), bind("y", "k"), bind("a", "k"))
    core.change(drop("a"))
    core.change(declare("a"), bind("a", "k"))
    core.attach(session, "a")
    watch = ToldWatch(core, key="k", connection="late", presence=False)
    core.node.watching.load_turn()
    for one in watch, other:
        one.take()
    steps.turns()
    settle(core)
    for one in watch, other:
        one.take()
    assert watch.members == {"x": False, "y": False, "a": False}
    assert other.members == {"x": False, "y": False, "a": True}
    core.change(drop("a"))
    steps.turns()
    settle(core)
    for one in watch, other:
        one.take()
        assert one.members == {"x": False, "y": False}


def test_keys_that_are_not_watched_any_more_are_forgotten_over_several_ticks(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = steps.core
    for watch in watched_keys(core):
        watch.leave()
    forgotten: list[WatchedKey] = []
    forget = WatchedKey.forget

    def counted(watched: WatchedKey) -> None:
        forgotten.append(watched)
        forget(watched)

    monkeypatch.setattr(WatchedKey, "forget", counted)
    core.now_ms += REMEMBER_MS + 1
    core.node.watching.tick(core.now_ms)
    assert 0 < len(forgotten) * QUEUES < 1_100
    for _ in range(KEYS):
        core.node.watching.tick(core.now_ms)
    assert len(forgotten) == KEYS and core.state.interest.members is None


def test_what_is_looked_up_anew_is_told_though_nothing_happens_afterwards(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.MEMBER_CHANGES_WAITING_MAX", 300)
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 10)
    core = steps.core
    watches = watched_keys(core)
    for number in range(3):
        core.change(unbind(f"q{number}", *(f"k{key}" for key in range(KEYS))))
    steps.turns()
    settle(core)
    for watch in watches:
        watch.take()
        assert watch.members == {f"q{number}": False for number in range(3, QUEUES)}


@pytest.mark.parametrize("waiting_max", [100, 10_000])
def test_one_bind_of_many_keys_reaches_prefixes_with_and_without_presence(
    waiting_max: int, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the queue is consumed before its turn, and if more keys change than may wait."""
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.COUNTS_WAITING_MAX", waiting_max)
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 5)
    core = steps.core
    core.change(declare("q"))
    keys = [f"key/{number}" for number in range(300)]
    watches = [
        ToldWatch(core, prefix="key/"[:length], presence=presence, connection=str(length))
        for length in range(5)
        for presence in (True, False)
    ]
    settle(core)
    for watch in watches:
        watch.take()
    core.change(bind("q", *keys))
    if waiting_max > len(keys):
        core.attach(core.session(), "q")
    steps.turns()
    for watch in watches:
        core.now_ms += SNAPSHOT_PAUSE_MS
        settle(core)
        watch.take()
        assert {key: bound for key, (bound, _) in watch.counts.items()} == dict.fromkeys(keys, 1)


def test_a_storm_below_one_prefix_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes take turns, and only the one with the most that waits gets a snapshot."""
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.CHANGES_PER_STEP_MAX", 20)
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.COUNTS_WAITING_MAX", 400)
    core = CoreDriver()
    core.change(declare("q", "r"))
    storm, calm = (ToldWatch(core, prefix=prefix, connection=prefix) for prefix in ("storm/", "calm/"))
    settle(core)
    assert [one.take() for one in (storm, calm)] == [[], []] and (storm.snapshots, calm.snapshots) == (1, 1)
    core.change(bind("q", *(f"storm/{number}" for number in range(390))))
    core.change(bind("r", *(f"calm/{number}" for number in range(3))))
    for _ in range(3):
        core.node.watching.turn()
    core.now_ms += 1_000
    core.node.watching.tick(core.now_ms)
    calm.take()
    assert len(calm.counts) == 3 and core.node.watching.has_turns, "told while much of the storm waits"
    core.change(bind("r", *(f"calm/x{number}" for number in range(3))))
    core.change(bind("r", *(f"storm/x{number}" for number in range(390))))
    for _ in range(2):
        settle(core, SNAPSHOT_PAUSE_MS)
        calm.take(), storm.take()
    assert (storm.snapshots, calm.snapshots) == (2, 1)
    assert len(storm.counts) == 780 and len(calm.counts) == 6


def test_a_page_of_a_snapshot_is_told_only_where_there_is_a_place_for_it() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "rooms/1"))
    watch = ToldWatch(core, prefix="rooms/")
    settle(core)
    watching = core.node.watching
    assert watching.lists_keys(watch.watcher)
    watching.dirty.clear()
    assert finish(watching.answer(watch.watcher, core.now_ms, lists=False)) is None
    assert list(watching.dirty) == [watch.watcher.number], "it asks again at once, with a place"
    watch.take()
    assert watch.counts == {"rooms/1": (1, 0)} and not watching.lists_keys(watch.watcher)
    core.change(bind("q", "rooms/2"))
    settle(core)
    assert finish(watching.answer(watch.watcher, core.now_ms, lists=False)) is not None, "no page: it needs no place"
