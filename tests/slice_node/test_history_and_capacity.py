"""Keys with a history and a capacity: the history leaves room, so that a key never refuses publishes for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal_contract.options import KeyOptions
from shoal_slice_node.core.apply import key_options
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables

from .core_driver import bind, configure, declare
from .key_options_driver import KeyOptionsDriver
from .memory_base import MemoryBase


@pytest.fixture(params=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> KeyOptionsDriver:
    core = KeyOptionsDriver(MemoryTables() if request.param == "memory" else Delta(MemoryBase()))
    core.change(declare("q"))
    return core


@pytest.mark.parametrize("chunks", [(5, 5), (1, 9), (9, 1), (12,)])
def test_a_history_that_is_kept_in_whole_chunks_leaves_the_rest_of_the_capacity(
    core: KeyOptionsDriver, chunks: tuple[int, ...]
) -> None:
    core.change(configure("k", KeyOptions(history_messages=10, capacity_messages=12)))
    for messages in chunks:
        assert not core.say(*[b"x"] * messages).refusals
    for _ in range(50):
        assert not core.say(b"x", b"x").refusals
        core.later(2_000)
    assert len(core.say(b"x", b"x", b"x").refusals) == 1, "more than the history leaves"
    low, head = core.kept()
    assert head - low <= 12
    core.sound()


def test_a_backlog_counts_though_a_history_is_kept_in_whole_chunks(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(history_messages=3, capacity_messages=6)), bind("q", "k"))
    core.say(b"x", b"x")
    taken = sum(not core.say(b"x").refusals for _ in range(20))
    assert taken == 4, "what the queue still has to get"
    assert len(core.read("q")) == 6
    core.later(2_000)
    assert not core.say(b"x").refusals


@pytest.mark.parametrize("options", [KeyOptions(history_messages=1000), KeyOptions(history_age_s=86_400)])
def test_a_history_gives_way_to_a_capacity_in_bytes(core: KeyOptionsDriver, options: KeyOptions) -> None:
    core.change(configure("k", replace(options, capacity_bytes=10_000)))
    for _ in range(60):
        assert not core.say(b"x" * 500).refusals
        core.later(2_000)
    low, head = core.kept()
    assert head - low == 10, "half of the capacity"
    assert not core.say(b"x" * 5_000).refusals
    core.sound()


def test_a_long_history_gives_way_at_once_to_a_new_capacity(
    core: KeyOptionsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_options, "HISTORY_MESSAGES_PER_TRIM", 4)
    core.change(configure("k", KeyOptions(history_messages=1000)))
    for _ in range(100):
        core.say(b"x" * 100)
    core.change(configure("k", KeyOptions(history_messages=1000, capacity_bytes=1_000)))
    assert core.say(b"x").refusals
    core.later(20_000)
    assert core.kept() == (96, 101)
    assert not core.say(b"x" * 500).refusals
    core.sound()


def test_a_backlog_counts_though_the_history_gives_way(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(history_messages=10, capacity_bytes=100)), bind("q", "k"))
    assert sum(not core.say(b"x" * 10).refusals for _ in range(20)) == 10
    core.later(5_000)
    assert core.say(b"x").refusals and core.kept() == (1, 11)
    assert len(core.read("q")) == 10
    core.later(5_000)
    assert core.kept() == (6, 11) and not core.say(b"x").refusals


def test_where_the_oldest_messages_make_room_a_history_may_have_all_the_capacity(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(history_messages=1000, capacity_bytes=10_000, policy="drop_oldest")))
    for _ in range(60):
        assert not core.say(b"x" * 500).refusals
    core.later(5_000)
    assert core.kept() == (41, 61)
    core.sound()
