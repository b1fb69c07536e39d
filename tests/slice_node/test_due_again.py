"""Delayed publishes that are refused when they are due: they are due again later, by the leader's clock."""

from __future__ import annotations

import pytest

from shoal_contract.options import KeyOptions
from shoal_slice_node.core.apply.records import Due, Kind, encode_due
from shoal_slice_node.core.limits import DUE_AGAIN_MS
from shoal_slice_node.core.rows.due_row import due_time

from .core_driver import configure, publish
from .due_driver import HOUR_MS, DueDriver, check


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> DueDriver:
    return DueDriver(request.param)


def full(core: DueDriver) -> None:
    """A delayed publish to the key was refused once: the key is at its capacity."""
    core.change(configure("k", KeyOptions(capacity_messages=1)), publish("k", b"1"))
    core.later("k", b"2", after_ms=10)
    assert core.wait(20) == [("k", 1, b"1")] and core.delayed == (1, 3)


def make_room(core: DueDriver) -> None:
    core.ack(core.reader, "k", 1, 2)
    core.settle()


def test_after_a_clock_that_was_ahead_a_refused_publish_waits_no_longer_than_else(core: DueDriver) -> None:
    """Times of records do not go back with the clock."""
    core.wall_ahead_ms += 30 * 24 * HOUR_MS
    core.change(publish("other", b""))
    core.wall_ahead_ms -= 30 * 24 * HOUR_MS
    full(core)
    make_room(core)
    assert core.state.time_ms > core.wall_ms + 29 * 24 * HOUR_MS
    assert [body for _, _, body in core.wait(DUE_AGAIN_MS + HOUR_MS // 60)] == [b"2"]


def test_what_is_refused_again_and_again_is_looked_at_less_and_less_often(core: DueDriver) -> None:
    full(core)
    looks, last_ms = [], core.wall_ms
    for _ in range(5 * 60):
        before = len(core.records)
        core.wait(HOUR_MS // 60)
        if any(record.kind == Kind.DUE for record in core.records[before:]):
            looks.append(round((core.wall_ms - last_ms) / 60_000))
            last_ms = core.wall_ms
    assert looks == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    check(core)
    core.restart()
    core.consume()
    core.take(core.reader)
    make_room(core)
    assert [body for _, _, body in core.wait(HOUR_MS)] == [b"2"]
    assert core.delayed == (0, 0)
    check(core)


def test_without_the_leaders_time_that_of_the_record_counts(core: DueDriver) -> None:
    full(core)
    ((row_key, _),) = core.tables.due.scan()
    core.now_ms += HOUR_MS
    core.record(Kind.DUE, encode_due([Due(row_key, b"k")]))
    ((later, _),) = core.tables.due.scan()
    assert due_time(later) == core.state.time_ms + 2 * DUE_AGAIN_MS
