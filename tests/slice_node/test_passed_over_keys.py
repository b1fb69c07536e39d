"""Keys with cursors that advanced while many were noted: they are passed over, and a walk finds them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.options import KeyOptions
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.background import key_walk, scan_lines, trimmer
from shoal_slice_node.core.background.scan_lines import ScanLines
from shoal_slice_node.core.background.trimmer import Trimmer
from shoal_slice_node.core.limits import (
    ADVANCED_NOTED_MAX,
    FULL_LOOKED_AT_MEMBERS_MAX,
    FULL_LOOKED_AT_STEPS_MAX,
    FULL_NOTED_MAX,
    KEYS_WALKED_PER_TURN,
    TRIM_DELAY_MS,
)
from shoal_slice_node.core.node.commit import NODE, Item
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.tables.delta import Delta
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, configure, declare, publish, purge, unbind
from .memory_base import MemoryBase


class CheckpointDriver(CoreDriver):
    """Has a delta over a checkpoint, and writes it where it is told to."""

    def __init__(self) -> None:
        self.base = MemoryBase()
        self.delta = Delta(self.base)
        self.has_lsn = self.walks = 0
        super().__init__(self.delta)
        self.node.key_walk.checkpoint_lsn = self._walk_begins

    def _walk_begins(self) -> int:
        self.walks += 1
        return self.has_lsn

    def checkpoint(self) -> None:
        self.delta.freeze()
        self.base.checkpoint(self.delta)
        self.has_lsn = self.state.lsn


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes 3 keys, and walks over 2 at a time."""
    monkeypatch.setattr(trimmer, "ADVANCED_NOTED_MAX", 3)
    monkeypatch.setattr(trimmer, "FULL_NOTED_MAX", 2)
    for module in trimmer, key_walk:
        monkeypatch.setattr(module, "KEYS_WALKED_PER_TURN", 2)


def with_messages(core: CoreDriver, keys: Sequence[str], queue: str = "q") -> None:
    core.change(declare(queue), bind(queue, *keys))
    core.change_all(publish(key, b"x") for key in keys)


def walks(core: CheckpointDriver, ticks: int) -> int:
    """How often a walk begins in so many ticks."""
    before = core.walks
    for _ in range(ticks):
        core.now_ms += 1_000
        core.maintain()
    return core.walks - before


def ids_of(numbers: range) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in numbers]


def test_what_is_noted_is_bounded_in_memory() -> None:
    """A million keys took 255 MiB, which nothing counted, and a purge notes 90,000 a second."""
    found = Trimmer(CoreDriver().state)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(0, 3 * ADVANCED_NOTED_MAX, 500):
        found.advanced(ids_of(range(number, number + 500)), 1_000 + number)
    noted_bytes = tracemalloc.get_traced_memory()[0] - before
    for turn in range(2 * ADVANCED_NOTED_MAX // 200):
        found._line_up(10_000_000 + turn, 200)
    lined_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(found.noted) == ADVANCED_NOTED_MAX and not found._advances
    assert max(noted_bytes, lined_bytes) < 400 * ADVANCED_NOTED_MAX
    assert found.passed_over == 2 * ADVANCED_NOTED_MAX


def test_a_key_that_is_noted_advances_though_others_are_passed_over() -> None:
    found = Trimmer(CoreDriver().state)
    found.advanced(ids_of(range(ADVANCED_NOTED_MAX)), 1_000)
    found.advanced(ids_of(range(10)), 2_000)
    assert found.passed_over == 0
    assert found._advances[bytes(8)] == (2, 1_000)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("known", [False, True])
def test_keys_that_were_passed_over_are_found_once_a_checkpoint_has_them(known: bool) -> None:
    """`known`: the checkpoint has the keys, and nothing of what happened to them since."""
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(20)]
    core.change(declare("q"), bind("q", *keys))
    if known:
        core.checkpoint()
    core.change_all(publish(key, b"x") for key in keys)
    core.settle()
    core.change(purge("q"))
    assert core.state.kept.messages == 20 and core.trimmer.passed_over == 17
    core.settle()
    assert core.state.kept.messages == 17
    assert walks(core, 30) > 1, "until a checkpoint has what happened"
    core.checkpoint()
    core.settle()
    assert core.state.kept.messages == 0
    assert walks(core, 30) == 0
    core.check()


@pytest.mark.usefixtures("few")
def test_what_the_walk_finds_comes_before_what_advances() -> None:
    """Where more advances all the time than is searched, every key has its turn."""
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(30)]
    with_messages(core, [*keys, "rest"])
    core.settle()
    core.change(purge("q"))
    core.checkpoint()
    noise = ids_of(range(1_000))
    for turn in range(200):
        core.trimmer.advanced(noise, core.now_ms)
        core.now_ms += 2 * TRIM_DELAY_MS
        core.maintain()
        assert len(core.trimmer.noted) <= 3 + 2 * 2
        if turn % 20 == 0:
            core.checkpoint()
    assert core.state.kept.messages == 0
    core.check()


@pytest.mark.usefixtures("few")
def test_an_ended_binding_whose_key_keeps_nothing_is_found_too() -> None:
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(10)]
    core.change(*(configure(key, KeyOptions(capacity_messages=1, policy="drop_oldest")) for key in keys))
    core.change(declare("q", "other"), bind("q", *keys), bind("other", *keys))
    core.change_all(publish(key, b"x") for key in keys)
    core.change(unbind("q", *keys))
    core.change_all(publish(key, b"y") for key in keys)
    core.change(purge("other"))
    core.checkpoint()
    core.settle()
    core.checkpoint()
    core.settle()
    assert not list(core.tables.ended.scan()) and core.state.kept.messages == 0
    core.check()


@pytest.mark.usefixtures("few")
def test_a_full_key_is_noted_though_many_others_are() -> None:
    core = CheckpointDriver()
    core.change(configure("jobs", KeyOptions(capacity_messages=1)))
    with_messages(core, ["jobs"])
    core.settle()
    core.change(purge("q"))
    core.trimmer._advances.clear()
    core.trimmer._touched.clear()
    core.trimmer.advanced(ids_of(range(3)), core.now_ms)
    assert core.change(publish("jobs", b"y")).steps[0].refusals
    core.trim()
    assert not core.change(publish("jobs", b"y")).steps[0].refusals


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("bindings", [1, FULL_LOOKED_AT_MEMBERS_MAX])
def test_keys_that_are_really_full_take_no_place_of_one_that_is_not_any_more(bindings: int) -> None:
    """A key whose consumer acked at once refused its publishers for 16 s, beside others with 60,000 full keys."""
    core = CheckpointDriver()
    full = [f"full{number}" for number in range(20)]
    core.change(*(configure(key, KeyOptions(capacity_messages=1)) for key in (*full, "jobs")))
    for number in range(bindings):
        with_messages(core, full if number == 0 else [], f"f{number}")
        core.change(declare(f"q{number}"), bind(f"q{number}", "jobs"))
    core.settle()
    for _ in range(3):
        assert not core.change(publish("jobs", b"y")).steps[0].refusals
        core.change(purge(*(f"q{number}" for number in range(bindings))))
        for key in full:
            assert core.change(publish(key, b"y")).steps[0].refusals
        core.trimmer._advances.clear()  # As if it had been passed over.
        core.trimmer._touched.clear()
        core.trimmer.advanced(ids_of(range(3)), core.now_ms)
        assert core.change(publish("jobs", b"y")).steps[0].refusals
        assert not core.trimmer._full
        core.now_ms += 20
        core.node.tick(core.now_ms, core.wall_ms)
        core.commit()


@pytest.mark.parametrize("bindings", [1, 20])
def test_a_key_that_was_full_is_trimmed_as_soon_as_it_advances(bindings: int) -> None:
    """Its acks are on their way to the tables when it refuses: nothing can be trimmed yet."""
    core = CheckpointDriver()
    core.change(configure("jobs", KeyOptions(capacity_messages=1)))
    names = [f"q{number}" for number in range(bindings)]
    core.change(declare(*names), *(bind(name, "jobs") for name in names), publish("jobs", b"x"))
    core.settle()
    core.trimmer.advanced(core.trimmer.noted, core.now_ms)
    core.trim()
    assert core.change(publish("jobs", b"y")).steps[0].refusals
    core.trim()
    assert core.change(publish("jobs", b"y")).steps[0].refusals
    core.change(purge(*names))
    assert core.trim(), "without another refusal"
    assert not core.change(publish("jobs", b"y")).steps[0].refusals


def test_keys_that_were_full_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimmer, "FULL_NOTED_MAX", 3)
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(9)]
    core.change(*(configure(key, KeyOptions(capacity_messages=1)) for key in keys))
    with_messages(core, keys)
    for key in (*keys, keys[-3]):
        assert core.change(publish(key, b"y")).steps[0].refusals
    assert len(core.trimmer._were_full) == 3


@pytest.mark.usefixtures("few")
def test_a_full_key_with_many_bindings_takes_no_place_while_its_lowest_binding_keeps_what_it_has() -> None:
    core = CheckpointDriver()
    core.change(configure("room", KeyOptions(capacity_messages=1)))
    for number in range(20):
        core.change(declare(f"m{number}"), bind(f"m{number}", "room"))
    core.change(publish("room", b"x"))
    core.change(purge(*(f"m{number}" for number in range(19))))
    assert core.change(publish("room", b"y")).steps[0].refusals
    core.trim()
    for _ in range(2):
        assert core.change(publish("room", b"y")).steps[0].refusals
        assert not core.trimmer._full
    core.change(purge("m19"))
    assert core.change(publish("room", b"y")).steps[0].refusals
    core.trim()
    assert not core.change(publish("room", b"y")).steps[0].refusals


def test_what_is_found_of_full_keys_is_bounded_and_given_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimmer, "FULL_NOTED_MAX", 10)
    monkeypatch.setattr(trimmer, "SCAN_MEMBERS_PER_TURN", 4)
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(30)]
    core.change(*(configure(key, KeyOptions(capacity_messages=1)) for key in keys))
    with_messages(core, keys)
    core.change(purge("q"))
    found = Trimmer(core.state)
    found.full([row[ID] for _, row in core.tables.key.scan()], 1_000)
    assert len(found._found) == 10 and found.pending
    assert [len(found.turn(1_000)) for _ in range(3)] == [4, 4, 2]


def test_full_keys_are_bounded() -> None:
    found = Trimmer(CoreDriver().state)
    for number in range(0, 3 * FULL_NOTED_MAX, 1_000):
        found.full(ids_of(range(number, number + 1_000)), 1_000)
    found.advanced(ids_of(range(1_000_000, 1_000_000 + ADVANCED_NOTED_MAX)), 1_000)
    found.full(ids_of(range(2_000_000, 2_000_000 + 3 * FULL_NOTED_MAX)), 1_000)
    assert len(found.noted) == ADVANCED_NOTED_MAX + FULL_NOTED_MAX
    assert len(found._full) <= 4 * FULL_NOTED_MAX


def test_keys_with_many_bindings_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_lines, "LINED_MAX", 2)
    lines = ScanLines()
    assert [lines.add(b"large %d" % number, 40_000, urgent=False) for number in range(3)] == [True, True, False]
    assert all(lines.add(b"small %d" % number, 7, urgent=False) for number in range(10))
    assert lines.add(b"urgent", 40_000, urgent=True)
    assert len(lines) == 13 and b"large 2" not in lines


def test_a_key_that_found_no_room_in_its_line_is_found_by_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_lines, "LINED_MAX", 1)
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(4)]
    names = [f"m{number}" for number in range(8)]
    for name in names:
        with_messages(core, keys, name)
    core.change(purge(*names))
    core.settle()
    assert core.trimmer.passed_over == 3
    core.checkpoint()
    walks(core, 20)
    assert core.state.kept.messages == 0


@pytest.mark.usefixtures("few")
def test_trims_that_were_not_written_are_found_again() -> None:
    core = CheckpointDriver()
    keys = [f"k{number}" for number in range(12)]
    with_messages(core, keys)
    core.change(purge("q"))
    core.checkpoint()
    submit, refused = core.node.commit.submit, list[Item]()

    def failing(item: Item, source: Hashable = NODE) -> None:
        if item.kind == Kind.TRIM:
            refused.append(item)
            core.trimmer.advanced(ids_of(range(5)), core.now_ms)  # Meanwhile others took the room.
            error: ShoalError = Unavailable("the disk is full")
            item.failed(error)
        else:
            submit(item, source)

    core.node.commit.submit = failing  # type: ignore[method-assign]
    for _ in range(20):
        core.now_ms += 1_000
        core.maintain()
    assert refused
    core.node.commit.submit = submit  # type: ignore[method-assign]
    core.checkpoint()
    core.settle()
    core.checkpoint()
    core.settle()
    assert core.state.kept.messages == 0
    core.check()


def test_a_walk_waits_until_there_is_room() -> None:
    found = Trimmer(CoreDriver().state)
    found.advanced(ids_of(range(ADVANCED_NOTED_MAX)), 1_000)
    assert found.room_for_walk
    found.walked(ids_of(range(1_000_000, 1_000_000 + KEYS_WALKED_PER_TURN)), 1_000)
    assert found.room_for_walk
    found.walked(ids_of(range(2_000_000, 2_000_000 + KEYS_WALKED_PER_TURN)), 1_000)
    assert not found.room_for_walk and found.passed_over == 0


def test_an_ended_binding_of_a_full_key_is_found_void_once_however_many_publishes_are_refused() -> None:
    """Each refused publish noted it again, 400 bytes for seven of them, until the next turn."""
    core = CoreDriver()
    names = [f"e{number}" for number in range(FULL_LOOKED_AT_MEMBERS_MAX - 2)]
    core.change(configure("k", KeyOptions(capacity_messages=1, policy="drop_oldest")))
    core.change(declare("q", *names), bind("q", "k"), *(bind(name, "k") for name in names))
    core.change(publish("k", b"1"), *(unbind(name, "k") for name in names))
    core.change(publish("k", b"2"))
    row = core.tables.key.get(core.state.full_name(b"k"))
    assert row is not None
    for _ in range(5):
        core.trimmer.full([row[ID]], core.now_ms)
    void = core.trimmer.take_void()
    assert len(void) == len(set(void)) == len(names)


def test_a_full_key_that_many_have_left_is_looked_at_in_turns() -> None:
    """Each refused publish passed all 50,000 bindings that had gone since the checkpoint, 9 ms, within its record:
    2,000 of 12 bytes stopped a slice for 18 s."""
    few = FULL_LOOKED_AT_STEPS_MAX
    with patched({"PAGE_MEMBERS_MIN": 2, "GONE_RUN_MIN": 1_000, "FULL_LOOKED_AT_MEMBERS_MAX": 1}):
        core = CheckpointDriver()
        names = [f"q{number:02}" for number in range(20 * few)]
        core.change(configure("jobs", KeyOptions(capacity_messages=1)), declare(*names))
        core.change(*(bind(name, "jobs") for name in names), publish("jobs", b"x"))
        core.settle()
        core.change(*(unbind(name, "jobs", discard=True) for name in names[:-1]))
        binding = core.tables.binding
        members, calls = binding.members, list[tuple[object, ...]]()

        def counted(*asked: Any) -> Any:
            calls.append(asked)
            return members(*asked)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(binding, "members", counted)
            assert core.change(publish("jobs", b"y")).steps[0].refusals
            assert 0 < len(calls) <= few
        core.change(purge(names[-1]))
        assert core.change(publish("jobs", b"y")).steps[0].refusals
        core.trim()
        assert not core.change(publish("jobs", b"y")).steps[0].refusals
