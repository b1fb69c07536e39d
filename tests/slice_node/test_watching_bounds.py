"""What watches may not do, and what they may cost, on the pure node."""

from __future__ import annotations

from typing import Never

import pytest

from shoal_contract.errors import InvalidName, Malformed, NotOwner, ResourceExhausted
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.watching.limits import (
    CHANGED_KEYS_PART,
    PART_BYTES_MAX,
    PREFIXES_PER_CONNECTION_MAX,
    PREFIXES_WATCHED_MAX,
    REMEMBER_MS,
    WATCH_BYTES,
    WATCHES_MAX,
    WATCHES_PER_CONNECTION_MAX,
)
from shoal_slice_node.core.watching.watched_key import WatchedKey
from shoal_slice_node.core.watching.watcher import Watcher
from tests.slice_node.core_driver import PARTITIONS, CoreDriver, bind, declare, unbind
from tests.slice_node.told_watch import ToldWatch, settle


@pytest.fixture
def core() -> CoreDriver:
    return CoreDriver()


def members_of(core: CoreDriver, count: int, key: str = "room", first: int = 0) -> list[str]:
    names = [f"q{number:04}" for number in range(first, first + count)]
    core.declare(names)
    core.change_all(bind(name, key) for name in names)
    return names


def test_a_key_that_another_slice_gets_ends_its_watch(core: CoreDriver) -> None:
    core.change(declare("a"), bind("a", "room"))
    watch, counts = ToldWatch(core, key="room"), ToldWatch(core, prefix="ro")
    settle(core)
    watch.take(), counts.take()
    core.record(Kind.OWNERSHIP, encode_ownership(2, bytes(PARTITIONS)))
    with pytest.raises(NotOwner):
        watch.take()
    watch.leave()
    settle(core, 2_000)
    counts.take()
    assert (counts.snapshots, counts.counts) == (2, {})
    with pytest.raises(NotOwner):
        ToldWatch(core, key="room")


def test_wrong_requests_are_refused(core: CoreDriver) -> None:
    with pytest.raises(Malformed, match="members"):
        ToldWatch(core)
    with pytest.raises(InvalidName):
        ToldWatch(core, key="")
    with pytest.raises(InvalidName, match="limit is 255"):
        ToldWatch(core, key="k" * 256)
    with pytest.raises(InvalidName, match="256 bytes; the limit is 255"):
        ToldWatch(core, prefix="k" * 256)
    ToldWatch(core, prefix="k" * 255)
    assert len(core.node.watching) == 1


def test_watches_are_bounded(core: CoreDriver) -> None:
    own = [ToldWatch(core, key=f"k{number}") for number in range(WATCHES_PER_CONNECTION_MAX)]
    with pytest.raises(ResourceExhausted, match="watches of one connection: 65; the limit is 64"):
        ToldWatch(core, key="k0")
    own.pop().leave()
    ToldWatch(core, key="k0")
    for number in range(WATCHES_MAX - WATCHES_PER_CONNECTION_MAX):
        ToldWatch(core, key="k0", connection=f"other {number}")
    with pytest.raises(ResourceExhausted, match="watches of this slice"):
        ToldWatch(core, key="k0", connection="one more")


def test_prefixes_are_bounded_and_those_without_a_watch_give_way(core: CoreDriver) -> None:
    watches = [ToldWatch(core, prefix=f"p{number}", connection=str(number)) for number in range(PREFIXES_WATCHED_MAX)]
    with pytest.raises(ResourceExhausted, match="prefixes watched"):
        ToldWatch(core, prefix="p-more")
    watches[5].leave()
    ToldWatch(core, prefix="p-more")


def test_one_connection_does_not_take_all_prefixes(core: CoreDriver) -> None:
    own = [ToldWatch(core, prefix=f"p{number}") for number in range(PREFIXES_PER_CONNECTION_MAX)]
    ToldWatch(core, prefix="p0"), ToldWatch(core, prefix="p0", presence=False)
    with pytest.raises(ResourceExhausted, match="prefixes watched by one connection: 9; the limit is 8"):
        ToldWatch(core, prefix="p-more")
    ToldWatch(core, prefix="p-more", connection="other")
    own[5].leave()
    ToldWatch(core, prefix="p-more")
    with pytest.raises(ResourceExhausted, match="prefixes watched by one connection"):
        ToldWatch(core, prefix="p5")


def test_memory_is_counted_and_a_group_without_room_is_counted_only(core: CoreDriver) -> None:
    shares = DispatchShares(attached_bytes=2 * WATCH_BYTES + 68_000)
    core.restart(shares)
    members_of(core, 30)
    watch = ToldWatch(core, key="room")
    settle(core)
    watch.take()
    assert watch.members is not None and shares.attached.used_bytes > 30 * 400
    members_of(core, 200, first=30)
    watch.take()
    assert watch.counts == {"room": (230, 0)}
    held_bytes = shares.attached.free_bytes
    shares.attached.hold(held_bytes)
    with pytest.raises(ResourceExhausted, match="memory of attached queues and watches"):
        ToldWatch(core, key="another")
    shares.attached.let_go(held_bytes)
    watch.leave()
    settle(core, REMEMBER_MS + 1)
    assert shares.attached.used_bytes == 0


def test_watches_take_half_of_the_memory_that_attached_queues_need_too(core: CoreDriver) -> None:
    """Eight connections with 128 watched prefixes took all of it: no queue could be attached any more."""
    shares = DispatchShares(attached_bytes=4_000_000)
    core.restart(shares)
    core.change(declare("q"))
    watches = [
        ToldWatch(core, prefix="key/" + "x" * number, presence=presence, connection=str(number))
        for number in range(5)
        for presence in (True, False)
    ]
    keys = [f"key/xxxxx{number}" for number in range(900)]
    for _ in range(2):
        core.change(bind("q", *keys))
        core.change(unbind("q", *keys))
        settle(core)
    changed_bytes = shares.attached.used_bytes - len(watches) * WATCH_BYTES
    assert 0 < changed_bytes <= 4_000_000 // CHANGED_KEYS_PART
    members_of(core, 100)
    own = ToldWatch(core, key="room", connection="one")
    settle(core)
    with pytest.raises(ResourceExhausted, match="memory of watches, bytes"):
        while True:
            watches.append(ToldWatch(core, key="room", connection=str(len(watches))))
    assert shares.attached.free_bytes >= 1_900_000
    for watch in (*watches, own):
        watch.leave()
    settle(core, REMEMBER_MS + 1)
    assert shares.attached.used_bytes == 0


def test_parts_of_a_snapshot_are_counted_and_kept_only_while_a_watch_is_told_them(core: CoreDriver) -> None:
    """Each watch that began between two changes had parts of its own, 270 KB that nothing counted; and a key kept the
    last snapshot for as long as it was quiet."""
    names = [f"{number:04}" + "q" * 250 for number in range(900)]
    core.declare(names)
    core.change_all(bind(name, "room") for name in names)
    first, second, third = [ToldWatch(core, key="room") for _ in range(3)]
    settle(core)
    (key,) = core.node.watching._keys[b"room"]
    assert first.take_one() is not None and second.take_one() is not None
    assert first.watcher.rest_bytes == second.watcher.rest_bytes > 900 * 254 - PART_BYTES_MAX
    assert first.watcher.parts[0] is second.watcher.parts[0], "watches of one time share it"
    first.take()
    assert first.watcher.rest_bytes == 0 and key._snapshot, "the second one has parts of it left"
    second.leave()
    assert key._snapshot == []
    third.take()
    assert third.members == first.members == dict.fromkeys(names, False) and key._snapshot == []


class Uncounted(dict[int, Watcher]):
    """Watches that nobody looks through."""

    def values(self) -> Never:
        raise AssertionError("all watches of a key are looked at")


def test_the_end_of_a_watch_looks_at_no_other_one_though_one_has_an_unread_snapshot(core: CoreDriver) -> None:
    """4,032 ends were 8 million looks, in one step of the loop."""
    core.declare(names := [f"{number:04}" + "n" * 200 for number in range(900)])
    core.change_all(bind(name, "room") for name in names)
    watches = [ToldWatch(core, key="room", connection=f"c{number}") for number in range(5)]
    settle(core)
    watched = core.node.watching._watchers[watches[0].watcher.number]
    assert isinstance(watched, WatchedKey)
    watches[-1].take_one()
    assert watched._snapshot and watches[-1].watcher.parts
    watched.watchers = Uncounted(watched.watchers)
    for watch in watches[:-1]:
        watch.leave()
    assert watched._snapshot
    watches[-1].leave()
    assert not watched._snapshot and not watched._told_parts
