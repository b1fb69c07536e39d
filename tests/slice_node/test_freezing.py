"""When the changes since the last checkpoint are frozen: decided without a clock, a loop or a disk."""

from __future__ import annotations

import pytest

from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.node.freezing import FreezeLimits, Freezing
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.small_rows import KEPT, decode_kept
from shoal_slice_node.core.tables.memory_tables import MemoryTables

LIMITS = FreezeLimits(delta_bytes=1_000, delta_age_ms=60_000, tail_operations=50, tail_bytes=5_000)
ROWS_MAX = 10


class Delta:
    """A delta of any size. `frozen`: the LSNs at which it was frozen."""

    def __init__(self) -> None:
        self.delta_rows_max = ROWS_MAX
        self.delta_rows = self.delta_bytes = self.checkpoint_lsn = 0
        self.frozen_rows = self.frozen_bytes = 0
        self.freezing = False
        self.frozen: list[int] = []

    def freeze(self, lsn: int) -> None:
        assert not self.freezing
        self.freezing = True
        self.frozen.append(lsn)

    def written(self) -> None:
        self.freezing, self.checkpoint_lsn = False, self.frozen[-1]


@pytest.fixture
def state() -> State:
    found = State(MemoryTables(), Interest())
    found.lsn = 1
    return found


@pytest.fixture
def delta() -> Delta:
    return Delta()


@pytest.fixture
def freezing(state: State, delta: Delta) -> Freezing:
    return Freezing(state, delta, LIMITS)


def test_a_small_delta_waits_until_it_is_old(freezing: Freezing, state: State, delta: Delta) -> None:
    assert not freezing.due(1_000)
    assert not freezing.due(61_000) and freezing.due(61_001)
    freezing.freeze()
    assert delta.frozen == [1] and not freezing.due(200_000), "one is being written"
    state.lsn = 2
    delta.written()
    assert not freezing.due(200_000), "its age counts from when it was first seen"
    assert freezing.due(260_001)


def test_nothing_is_frozen_where_nothing_changed(freezing: Freezing, delta: Delta) -> None:
    delta.checkpoint_lsn = 1
    assert not freezing.due(0) and not freezing.due(1 << 40)


@pytest.mark.parametrize(("rows", "size_bytes"), [(ROWS_MAX, 0), (0, 1_000)])
def test_a_large_delta_is_frozen_at_once(freezing: Freezing, delta: Delta, rows: int, size_bytes: int) -> None:
    delta.delta_rows, delta.delta_bytes = rows, size_bytes
    assert freezing.due(0) and freezing.is_large() and not freezing.is_large(2)


@pytest.mark.parametrize(("operations", "size_bytes"), [(50, 0), (0, 5_000)])
def test_changes_that_leave_no_rows_are_frozen_too_as_a_start_would_replay_them(
    freezing: Freezing, state: State, delta: Delta, operations: int, size_bytes: int
) -> None:
    state.tail.applied(operations - 1 if operations else 0, size_bytes - 1 if size_bytes else 0)
    assert not freezing.due(0)
    state.tail.applied(1, 1)
    assert freezing.due(0)
    freezing.freeze()
    delta.written()
    state.lsn = 2
    assert not freezing.due(0), "it counts from the freeze on"


def test_a_wanted_checkpoint_is_due_until_it_is_there_and_none_once_they_are_held(
    freezing: Freezing, state: State, delta: Delta
) -> None:
    freezing.want(1)
    assert freezing.due(0)
    freezing.freeze()
    delta.written()
    state.lsn = 2
    assert not freezing.due(0)
    freezing.want(2)
    assert freezing.due(0)
    freezing.hold()
    assert not freezing.due(0)


def test_what_is_frozen_has_the_totals_of_the_logs(freezing: Freezing, state: State) -> None:
    state.kept.messages, state.kept.body_bytes = 3, 30
    freezing.freeze()
    row = state.tables.local_totals.get(KEPT)
    assert row is not None and decode_kept(row) == (3, 30)


def test_a_follower_counts_what_it_applied() -> None:
    replica = Replica(MemoryTables())
    payload = encode_ownership(1, b"\x01")
    for lsn in (1, 2):
        replica.apply(Record(Kind.OWNERSHIP, 0, lsn, 1, 0, payload))
    tail = replica.state.tail
    assert (tail.operations, tail.journal_bytes) == (2, 2 * len(payload))
