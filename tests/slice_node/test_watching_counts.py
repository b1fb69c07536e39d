"""Watches of counts under a prefix, on the pure node: what is told, also in storms."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.watching.limits import (
    CHANGED_KEYS_MAX,
    COUNTS_EVERY_MS,
    KEYS_PER_PART_MAX,
)
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, unbind
from tests.slice_node.told_watch import ToldWatch, settle


@pytest.fixture
def core() -> CoreDriver:
    return CoreDriver()


def test_counts_of_a_prefix(core: CoreDriver) -> None:
    core.change(declare("a", "b"), bind("a", "room/1", "room/2", "roof"), bind("b", "room/1"))
    session = core.session()
    core.attach(session, "a")
    watch, everything = ToldWatch(core, prefix="room/"), ToldWatch(core, prefix="", presence=False)
    settle(core)
    watch.take(), everything.take()
    assert watch.counts == {"room/1": (2, 1), "room/2": (1, 1)}
    assert everything.counts == {"room/1": (2, 0), "room/2": (1, 0), "roof": (1, 0)}
    core.change(unbind("a", "room/2"), bind("b", "room/3"))
    core.attach(session, "b", handle=2)
    settle(core)
    watch.take(), everything.take()
    assert watch.counts == {"room/1": (2, 2), "room/3": (1, 1)}
    assert everything.counts == {"room/1": (2, 0), "room/3": (1, 0), "roof": (1, 0)}
    core.dispatcher.close(session)
    core.pump()
    settle(core)
    watch.take()
    assert watch.counts == {"room/1": (2, 0), "room/3": (1, 0)}
    assert (watch.snapshots, everything.snapshots) == (1, 1)


def test_a_dropped_queue_counts_until_it_is_reclaimed(core: CoreDriver) -> None:
    core.change(declare("large"), bind("large", *[f"k{number:03}" for number in range(300)]))
    watch = ToldWatch(core, prefix="k")
    settle(core)
    watch.take()
    assert len(watch.counts) == 300
    core.change(drop("large"))
    core.settle()
    settle(core)
    watch.take()
    assert watch.counts == {}


def test_a_snapshot_of_counts_has_bounded_parts_and_what_changes_meanwhile_follows(core: CoreDriver) -> None:
    keys = [f"k{number:04}" for number in range(3 * KEYS_PER_PART_MAX)]
    core.declare(["a", "b"])
    for begin in range(0, len(keys), 500):
        core.change(bind("a", *keys[begin : begin + 500]))
    watch = ToldWatch(core, prefix="k")
    part = watch.take_one()
    assert part is not None and part.more and len(part.keys) == KEYS_PER_PART_MAX
    core.change(bind("b", keys[0], keys[-1]), unbind("a", keys[1]), bind("b", "k-new"))
    settle(core)
    watch.take()
    expected = dict.fromkeys(keys, (1, 0)) | {keys[0]: (2, 0), keys[-1]: (2, 0), "k-new": (1, 0)}
    del expected[keys[1]]
    assert watch.counts == expected
    assert watch.snapshots == 1


def test_counts_go_on_from_a_place(core: CoreDriver) -> None:
    core.change(declare("a"), bind("a", "k1", "k2"))
    watch = ToldWatch(core, prefix="k")
    settle(core)
    watch.take()
    core.change(bind("a", "k3"), unbind("a", "k1"))
    settle(core)
    again = ToldWatch(core, prefix="k", after=watch.position)
    again.counts = dict(watch.counts)
    again.take(), watch.take()
    assert again.counts == watch.counts == {"k2": (1, 0), "k3": (1, 0)}
    assert again.snapshots == 0


def test_a_storm_over_many_keys_gives_a_slow_watch_a_snapshot(core: CoreDriver) -> None:
    """What is remembered is bounded, and a snapshot does not follow another at once."""
    watch = ToldWatch(core, prefix="k")
    settle(core)
    watch.take()
    core.declare(["a"])
    keys = [f"k{number:05}" for number in range(CHANGED_KEYS_MAX + 500)]
    for begin in range(0, len(keys), 500):
        core.change(bind("a", *keys[begin : begin + 500]))
    settle(core)
    watch.take()
    assert (watch.snapshots, len(watch.counts)) == (2, len(keys))
    for begin in range(0, len(keys), 500):
        core.change(unbind("a", *keys[begin : begin + 500]))
    core.maintain()
    assert watch.take() == [] and watch.snapshots == 2
    settle(core)
    watch.take()
    assert (watch.snapshots, watch.counts) == (3, {})


def test_a_storm_over_few_keys_is_told_a_few_times(core: CoreDriver) -> None:
    watch = ToldWatch(core, prefix="k")
    settle(core)
    watch.take()
    core.declare([f"q{number}" for number in range(200)])
    before = watch.responses
    for _ in range(10):
        core.change_all(bind(f"q{number}", "k1", "k2") for number in range(200))
        core.change_all(unbind(f"q{number}", "k1") for number in range(200))
        core.now_ms += COUNTS_EVERY_MS // 10
        core.maintain()
        watch.take()
    settle(core)
    watch.take()
    assert watch.responses - before <= 4
    assert watch.counts == {"k2": (200, 0)}
