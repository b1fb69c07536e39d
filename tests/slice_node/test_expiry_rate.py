"""How fast what has expired is given up, and what it may not hold up meanwhile: publishes to a full key, a replay, what
the figures count.
"""

from __future__ import annotations

import pytest

from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, decode_due
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import (
    DUE_PER_RECORD_MAX,
    EXPIRED_ROWS_AT_CAPACITY,
    EXPIRED_ROWS_PER_OPERATION,
    EXPIRED_ROWS_PER_RECORD,
    EXPIRED_ROWS_PER_STEP,
)
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.due_row import due_time
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, configure, declare, publish

TICK_MS = 20


def key_of(core: CoreDriver, name: str = "k") -> KeyRow:
    row = core.tables.key.get(core.state.full_name(name.encode()))
    assert row is not None
    return decode_key(row)


def kept(core: CoreDriver, name: str = "k") -> int:
    key = key_of(core, name)
    return key.head - key.low


@pytest.fixture
def core() -> CoreDriver:
    driver = CoreDriver()
    driver.change(declare("q"), bind("q", "k"))
    return driver


def test_a_key_whose_messages_expire_keeps_no_more_than_come_in_their_time(core: CoreDriver) -> None:
    """5,000 chunks a second with a time to live of a second: a record of each tick gave up 32 of them."""
    a_tick = 5_000 * TICK_MS // 1000
    for _ in range(100):
        core.change(*(publish("k", b"x", ttl_ms=1_000) for _ in range(a_tick)))
        core.now_ms += TICK_MS
        core.maintain()
    assert kept(core) <= 5_000
    core.check()


def test_what_one_record_looks_at_is_divided_among_its_keys() -> None:
    core = CoreDriver()
    keys = [f"k{number}" for number in range(EXPIRED_ROWS_PER_RECORD // EXPIRED_ROWS_PER_STEP * 2)]
    core.change(declare("q"), bind("q", *keys))
    for _ in range(EXPIRED_ROWS_PER_STEP):
        core.change(*(publish(key, b"x", ttl_ms=100) for key in keys))
    core.now_ms += 1_000
    core.maintain()
    assert [kept(core, key) for key in keys] == [EXPIRED_ROWS_PER_STEP // 2] * len(keys)
    core.now_ms += TICK_MS
    core.maintain()
    assert [kept(core, key) for key in keys] == [0] * len(keys)
    core.check()
    assert EXPIRED_ROWS_PER_RECORD // DUE_PER_RECORD_MAX > 0


def test_what_is_left_is_due_behind_all_that_the_record_names(core: CoreDriver) -> None:
    """So a record that is applied again to a part of itself does nothing twice. Else a publish refused before could be
    taken in a replay."""
    core.change(bind("q", *(f"k{number}" for number in range(40))))
    for _ in range(EXPIRED_ROWS_PER_STEP * 2):
        core.change(publish("k", b"x", ttl_ms=100))
    core.change(*(publish(f"k{number}", b"x", ttl_ms=100) for number in range(40)))
    before = list(core.records)
    core.now_ms += 200
    core.maintain()
    (record,) = [record for record in core.records[len(before) :] if record.kind == Kind.DUE]
    named = {due.row_key for due in decode_due(record.payload)}
    left = [row_key for row_key, _ in core.tables.due.scan()]
    assert left and not named.intersection(left) and all(due_time(row_key) == core.wall_ms + 1 for row_key in left)
    assert 0 < kept(core) < EXPIRED_ROWS_PER_STEP * 2
    core.check()

    def replayed(steps: int) -> Tables:
        tables = MemoryTables()
        replica = Replica(tables)
        for one in before:
            replica.apply(one)
        if steps:
            work = replica.in_steps(record)
            for _ in range(steps):
                next(work)
            replica = Replica(tables, replica.save_part())
        replica.apply(record)
        assert not list(check_tables(tables, True))
        return tables

    once = finish(checksums(replayed(0)))
    for steps in range(1, 5):
        assert finish(checksums(replayed(steps))) == once


def test_what_expires_one_after_the_other_is_given_up_at_its_time(core: CoreDriver) -> None:
    for number in range(5):
        core.change(publish("k", b"x", ttl_ms=100 + 100 * number))
    for left in (4, 3, 2, 1, 0):
        core.now_ms += 100
        core.maintain()
        assert kept(core) == left
    core.check()


def test_after_a_clock_that_was_ahead_the_rest_is_due_by_the_leaders(core: CoreDriver) -> None:
    """Record times stay where they were, for an hour here: what is left does not wait for so long."""
    for _ in range(EXPIRED_ROWS_PER_STEP + 10):
        core.change(publish("k", b"x", ttl_ms=100))
    core.wall_ahead_ms = 3_600_000
    core.change(publish("other", b"x"))
    core.wall_ahead_ms = 0
    core.now_ms += 200
    core.maintain()
    assert kept(core) == 10 and core.state.time_ms > core.wall_ms + 3_000_000
    core.now_ms += TICK_MS
    core.maintain()
    assert kept(core) == 0
    core.check()


def test_what_has_expired_takes_no_room_of_a_full_key(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=3)))
    core.change(publish("k", b"1", b"2", ttl_ms=100), publish("k", b"3", ttl_ms=1_000))
    core.now_ms += 100
    (found,) = core.change(publish("k", b"4", b"5")).steps
    assert (list(found.offsets), list(found.refusals)) == ([4], [])
    core.check()
    (found,) = core.change(publish("k", b"6")).steps
    assert found.refusals, "what has not expired does"
    core.now_ms += 900
    (found,) = core.change(publish("k", b"6", b"7")).steps
    assert found.refusals[0].error.value == 4, "what has goes, though there is still no room"
    assert kept(core) == 2
    core.check()


@pytest.mark.parametrize("atomic", [False, True])
def test_a_full_key_is_looked_at_a_few_rows_at_a_time(core: CoreDriver, atomic: bool) -> None:
    core.change(configure("k", KeyOptions(capacity_bytes=1_000)))
    for _ in range(2 * EXPIRED_ROWS_AT_CAPACITY):
        core.change(publish("k", b"x", ttl_ms=100))
    core.now_ms += 100
    core.change(publish("k", bytes(950)), atomic=atomic)
    assert kept(core) == EXPIRED_ROWS_AT_CAPACITY + 1
    core.check()


def test_a_record_of_expiries_is_priced_by_the_rows_that_it_may_look_at(core: CoreDriver) -> None:
    core.change(publish("k", b"x", ttl_ms=100))
    core.now_ms += 100
    before = core.node.commit.operations
    core.maintain()
    assert core.node.commit.operations >= before + 1 + EXPIRED_ROWS_PER_STEP // EXPIRED_ROWS_PER_OPERATION


def test_publishes_are_counted_though_the_oldest_messages_go(core: CoreDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=5, policy="drop_oldest")))
    for number in range(1, 5):
        core.change(publish("k", *[b"x"] * 5))
        core.change(publish("k", b"y"))
        assert core.state.counters.publishes == 6 * number
    step = wire.Publishes(keys=[b"k"], chunks=[publish("k", b"z").publishes.chunks[0]], not_before_ms=core.wall_ms + 10)
    core.change(wire.Step(publishes=step))
    core.now_ms += 10
    core.maintain()
    assert core.state.counters.publishes == 25
    core.check()


def test_what_expires_before_it_is_sent_is_no_ack(core: CoreDriver) -> None:
    session = core.session()
    core.attach(session, "q")
    core.change(publish("k", b"1", b"2", ttl_ms=100), publish("k", b"3"))
    core.pump()
    core.now_ms += 150
    core.dispatcher.registry.tell_time(core.wall_ms)
    assert [offset for _, offset, _ in core.take(session)] == [3] and len(core.gaps) == 1
    assert core.state.counters.acks == 0
    core.ack(session, "k", 3, 4)
    assert core.state.counters.acks == 1
    core.flush()
    core.check()
