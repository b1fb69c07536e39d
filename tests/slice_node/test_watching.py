"""Watches of members, on the pure node: what is told, and from where a watch goes on."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.limits import BUCKET_ENTRIES_MEAN
from shoal_slice_node.core.watching.limits import (
    CHANGES_REMEMBERED_MAX,
    COUNTS_EVERY_MS,
    MEMBERS_TOLD_AGAIN,
    MEMBERS_TOLD_MAX,
    REMEMBER_MS,
)
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, publish, unbind
from tests.slice_node.told_watch import JOINED, JOINED_ONLINE, LEFT, OFFLINE, ONLINE, ToldWatch, settle


@pytest.fixture
def core() -> CoreDriver:
    return CoreDriver()


def members_of(core: CoreDriver, count: int, key: str = "room", first: int = 0) -> list[str]:
    names = [f"q{number:04}" for number in range(first, first + count)]
    core.declare(names)
    core.change_all(bind(name, key) for name in names)
    return names


def test_a_watch_begins_with_the_members_and_then_tells_changes(core: CoreDriver) -> None:
    members_of(core, 3)
    watch = ToldWatch(core, key="room")
    settle(core)
    assert watch.take() == []
    assert (watch.members, watch.snapshots) == ({"q0000": False, "q0001": False, "q0002": False}, 1)
    core.change(declare("late"), bind("late", "room"), unbind("q0001", "room"), bind("q0001", "other"))
    assert watch.take() == [(JOINED, "late"), (LEFT, "q0001")]
    core.change(bind("late", "room"), unbind("q0001", "room"))
    assert watch.take() == [], "a second bind or unbind changes nothing"


def test_presence_is_told_of_the_first_and_the_last_session(core: CoreDriver) -> None:
    members_of(core, 2)
    first, second = core.session(), core.session()
    core.attach(first, "q0000")
    watch, without = ToldWatch(core, key="room"), ToldWatch(core, key="room", presence=False)
    settle(core)
    watch.take(), without.take()
    assert watch.members == {"q0000": True, "q0001": False}
    assert without.members == {"q0000": False, "q0001": False}
    core.attach(second, "q0000")
    core.attach(second, "q0001", handle=2)
    core.node.dispatcher.detach(first, 1)
    assert watch.take() == [(ONLINE, "q0001")]
    core.dispatcher.close(second)
    core.pump()
    assert watch.take() == [(OFFLINE, "q0001"), (OFFLINE, "q0000")]
    assert without.take() == []


def test_a_queue_that_sessions_wait_for_joins_online(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "early")
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.change(declare("early"), bind("early", "room"))
    assert watch.take() == [(JOINED_ONLINE, "early")]


def test_a_pull_is_no_presence_of_a_member(core: CoreDriver) -> None:
    members_of(core, 1)
    core.change(publish("room", b"1"))
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.pull(core.session(), "q0000", 1, lease_ms=1000)
    assert watch.take() == []


@pytest.mark.parametrize("bindings", [1, 3 * BUCKET_ENTRIES_MEAN])
def test_a_dropped_queue_leaves_at_once_and_once(core: CoreDriver, bindings: int) -> None:
    """Also one with bindings that are reclaimed later. A queue of the same name is another member."""
    keys = [f"k{number}" for number in range(bindings - 1)]
    core.change(declare("gone", "stays"), bind("gone", "room", *keys), bind("stays", "room"))
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.change(drop("gone"))
    assert watch.take() == [(LEFT, "gone")]
    late = ToldWatch(core, key="room")
    late.take()
    assert late.members == {"stays": False}
    core.change(declare("gone"), bind("gone", "room"))
    assert watch.take() == [(JOINED, "gone")]
    core.settle()
    settle(core)
    assert (watch.take(), late.take()) == ([], [(JOINED, "gone")])
    assert watch.members == late.members == {"stays": False, "gone": False}
    core.check()


def test_a_queue_that_one_record_binds_and_drops_leaves_at_once(core: CoreDriver) -> None:
    core.change(declare("stays"), bind("stays", "room"))
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    keys = [f"k{number}" for number in range(3 * BUCKET_ENTRIES_MEAN)]
    core.change(declare("gone"), bind("gone", "room", *keys), drop("gone"), declare("gone"))
    watch.take()
    assert watch.members == {"stays": False}


def test_a_transient_queue_that_ends_leaves(core: CoreDriver) -> None:
    core.change(declare("short", expires_after_s=5), bind("short", "room"))
    session = core.session()
    core.attach(session, "short")
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.dispatcher.close(session)
    core.pump()
    told = watch.take()
    for _ in range(10):
        settle(core)
        told += watch.take()
    assert told == [(OFFLINE, "short"), (LEFT, "short")]


def test_a_queue_dropped_before_the_watch_began_is_no_member(core: CoreDriver) -> None:
    core.change(declare("gone"), bind("gone", *[f"k{number}" for number in range(200)]))
    core.change(drop("gone"))
    watches = [ToldWatch(core, key=f"k{number}", connection=str(number)) for number in range(200)]
    settle(core)
    for watch in watches:
        watch.take()
        assert watch.members == {}


def test_a_watch_goes_on_from_every_place_that_is_remembered(core: CoreDriver) -> None:
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    begin = watch.position
    names = members_of(core, CHANGES_REMEMBERED_MAX)
    watch.take()
    assert watch.position.number == begin.number + len(names)
    for behind in range(CHANGES_REMEMBERED_MAX + 1):
        place = wire.WatchPosition()
        place.CopyFrom(begin)
        place.number += behind
        again = ToldWatch(core, key="room", after=place, connection=str(behind))
        again.members = dict.fromkeys(names[:behind], False)
        assert [name for _, name in again.take()] == names[behind:]
        assert (again.snapshots, again.members, again.position) == (0, watch.members, watch.position)
        assert again.responses == 1, "also a watch that lacks nothing gets an answer at once"


@pytest.mark.parametrize("field", ["life", "watch", "number"])
def test_a_place_that_is_not_of_this_watch_gives_a_snapshot(core: CoreDriver, field: str) -> None:
    members_of(core, 2)
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    place = wire.WatchPosition()
    place.CopyFrom(watch.position)
    setattr(place, field, getattr(place, field) + 1)
    again = ToldWatch(core, key="room", after=place)
    again.take()
    assert (again.snapshots, again.members) == (1, watch.members)


def test_a_place_without_presence_is_none_with_it(core: CoreDriver) -> None:
    watch = ToldWatch(core, key="room", presence=False)
    settle(core)
    watch.take()
    again = ToldWatch(core, key="room", after=watch.position)
    settle(core)
    again.take()
    assert again.snapshots == 1


def test_a_watch_too_far_behind_gets_a_snapshot(core: CoreDriver) -> None:
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.declare(["q"])
    for _ in range(CHANGES_REMEMBERED_MAX // 2 + 1):
        core.change(bind("q", "room"), unbind("q", "room"))
    core.change(bind("q", "room"))
    assert watch.take() == []
    assert (watch.snapshots, watch.members, watch.responses) == (2, {"q": False}, 2)


def test_a_restart_of_the_slice_gives_a_snapshot(core: CoreDriver) -> None:
    """The lives of leaders differ, whatever else is the same."""
    core.node.watching.begin(7)
    names = members_of(core, 2)
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    core.restart()
    core.node.watching.begin(8)
    again = ToldWatch(core, key="room", after=watch.position)
    settle(core)
    again.take()
    assert (again.snapshots, again.members) == (1, dict.fromkeys(names, False))


def test_what_is_watched_is_remembered_for_a_while(core: CoreDriver) -> None:
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    watch.leave()
    members_of(core, 1)
    settle(core, REMEMBER_MS - 2_000)
    again = ToldWatch(core, key="room", after=watch.position)
    again.members = {}
    assert again.take() == [(JOINED, "q0000")]
    again.leave()
    settle(core, REMEMBER_MS + 1)
    assert core.state.interest.members is None, "binds and unbinds have nothing to tell again"
    assert core.dispatcher.shares.attached.used_bytes == 0
    last = ToldWatch(core, key="room", after=again.position)
    settle(core)
    last.take()
    assert last.snapshots == 1


def test_a_large_group_is_counted_and_told_a_few_times_a_second(core: CoreDriver) -> None:
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    names = members_of(core, MEMBERS_TOLD_MAX + 1)
    settle(core)
    watch.take()
    assert (watch.members, watch.counts) == (None, {"room": (MEMBERS_TOLD_MAX + 1, 0)})
    late = ToldWatch(core, key="room")
    late.take()
    assert (late.snapshots, late.counts) == (1, watch.counts)
    before = watch.responses
    for number in range(10):
        core.change(*[unbind(name, "room") for name in names[number * 20 : number * 20 + 20]])
        core.now_ms += COUNTS_EVERY_MS // 4
        core.maintain()
        watch.take()
    settle(core)
    watch.take()
    assert 2 <= watch.responses - before <= 5
    assert watch.counts == {"room": (MEMBERS_TOLD_MAX - 199, 0)}
    session = core.session()
    core.attach(session, names[-1])
    settle(core)
    watch.take()
    assert watch.counts == {"room": (MEMBERS_TOLD_MAX - 199, 1)}
    core.change(*[unbind(name, "room") for name in names[200:400]])
    settle(core)
    watch.take()
    assert watch.members is not None
    assert len(watch.members) == 601 <= MEMBERS_TOLD_AGAIN
    assert [name for name, online in watch.members.items() if online] == [names[-1]]


def test_a_large_group_found_while_it_is_looked_up_is_counted(core: CoreDriver) -> None:
    members_of(core, MEMBERS_TOLD_MAX)
    watch, full = ToldWatch(core, key="room"), ToldWatch(core, key="room", presence=False)
    core.node.watching.load_turn()
    members_of(core, 1, first=MEMBERS_TOLD_MAX)
    settle(core)
    watch.take(), full.take()
    assert watch.counts == {"room": (MEMBERS_TOLD_MAX + 1, 0)} == {"room": (full.counts["room"][0], 0)}


@pytest.mark.parametrize("steps", range(6))
def test_what_changes_while_members_are_looked_up_is_told_once(core: CoreDriver, steps: int) -> None:
    names = members_of(core, MEMBERS_TOLD_MAX - 10)
    watch = ToldWatch(core, key="room")
    for _ in range(steps):
        if core.node.watching.loading:
            core.node.watching.load_turn()
    core.change(unbind(names[0], "room"), unbind(names[-1], "room"), drop(names[1], names[-2]))
    core.change(bind(names[-1], "room"), declare("new"), bind("new", "room"))
    settle(core)
    watch.take()
    assert watch.members == dict.fromkeys([*names[2:-2], names[-1], "new"], False)
