"""Background work that must not be forgotten: consumed logs after a crash, idle producers, what is to be reclaimed."""

from __future__ import annotations

import pytest

from shoal_contract.options import DURABLE
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import ChangeHead, Kind, encode_reclaim
from shoal_slice_node.core.background.idle_producers import IdleProducers
from shoal_slice_node.core.background.key_walk import KeyWalk
from shoal_slice_node.core.background.reclaim_list import ReclaimList
from shoal_slice_node.core.limits import (
    KEYS_WALKED_PER_TURN,
    PRODUCER_SAMPLE_MS,
    PRODUCERS_PER_TURN,
    RECLAIM_COST_PER_TURN,
    RECLAIM_KEY_COST,
    RECLAIM_NOTED_MAX,
    RECLAIM_QUEUE_COST,
)
from shoal_slice_node.core.rows.small_rows import HINT, RECLAIM_KEY, RECLAIM_QUEUE
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import Tables

from .core_driver import CoreDriver, bind, declare, publish
from .memory_base import MemoryBase

DAY_MS = 24 * 3600 * 1000


def test_logs_that_were_consumed_before_a_crash_are_trimmed_though_their_keys_are_at_rest() -> None:
    """Their trims were not decided yet when the node was killed; nothing moves any more."""
    base = MemoryBase()
    delta = Delta(base)
    core = CoreDriver(delta)
    keys = [f"k{number}" for number in range(3 * KEYS_WALKED_PER_TURN)]
    core.change(declare("q"))
    core.change_all(bind("q", key) for key in keys)
    core.change_all(publish(key, b"a") for key in keys)
    session = core.session(1 << 30)
    core.attach(session, "q", messages=1 << 20, size=1 << 30)
    for key, low, _ in core.take(session):
        core.ack(session, key, low, low + 1)
    core.flush()
    assert core.state.kept.messages == len(keys)
    delta.freeze()
    base.checkpoint(delta)
    core.restart()  # What had moved is not known any more.
    walk = KeyWalk(core.state)
    turns = 0
    while not walk.done:
        core.trimmer.advanced(walk.turn(), core.now_ms)
        turns += 1
    core.settle()
    assert core.state.kept.messages == 0 and not list(delta.log.scan())
    assert turns == len(keys) // KEYS_WALKED_PER_TURN + 1 and walk.turn() == []
    core.check()


def producer(number: int) -> bytes:
    return b"%016d" % number


def numbered(core: CoreDriver, *numbers: int, sequence: int = 1) -> None:
    for number in numbers:
        core.change(declare("q"), head=ChangeHead(producer(number), sequence, 0))


def forget(core: CoreDriver, idle: IdleProducers, clock_ms: int, turns: int) -> None:
    for _ in range(turns):
        if keys := idle.turn(clock_ms):
            core.record(Kind.RECLAIM, encode_reclaim(keys))


def producers(core: CoreDriver) -> set[int]:
    return {int(key) for key, _ in core.tables.producer.scan() if len(key) == 16}


def test_producers_that_were_silent_for_a_day_of_this_nodes_clock_are_forgotten() -> None:
    core = CoreDriver()
    idle = IdleProducers(core.state, DAY_MS)
    count = 3 * PRODUCERS_PER_TURN
    numbered(core, *range(count))
    clock_ms = 5_000
    forget(core, idle, clock_ms, 10)
    core.now_ms += 1000
    numbered(core, count, 0, sequence=2)
    for _ in range(DAY_MS // PRODUCER_SAMPLE_MS + 2):
        clock_ms += PRODUCER_SAMPLE_MS
        forget(core, idle, clock_ms, 1)
    forget(core, idle, clock_ms, 10)
    assert producers(core) == {count, 0}, "those that were heard after the first sample"
    core.check()


@pytest.mark.parametrize("again", [False, True])
def test_a_producer_that_is_heard_before_the_record_that_forgets_it_is_not_forgotten(again: bool) -> None:
    """What it sent then was stored twice, where its answer was lost on the way. `again`: it sends the same frame."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    head = ChangeHead(producer(1), 1, 0)
    first = core.change(publish("k", b"a"), head=head)
    idle = IdleProducers(core.state, DAY_MS)
    found: list[bytes] = []
    clock_ms = 0
    while not found:
        found = idle.turn(clock_ms)
        clock_ms += PRODUCER_SAMPLE_MS
        core.now_ms += PRODUCER_SAMPLE_MS
        core.change(declare("q"))
    if not again:
        head = ChangeHead(producer(1), 2, 1)
        first = core.change(publish("k", b"b"), head=head)
    assert core.change(publish("k", b"b"), head=head) == first
    core.record(Kind.RECLAIM, encode_reclaim(found))
    assert core.change(publish("k", b"b"), head=head) == first
    assert producers(core) == {1}
    core.check()


def test_a_clock_that_jumps_makes_no_producer_idle() -> None:
    core = CoreDriver()
    idle = IdleProducers(core.state, DAY_MS)
    numbered(core, 1)
    forget(core, idle, 5_000, 3)
    core.now_ms += 9 * DAY_MS  # The machine's clock, in the records; the node's own goes on as it did.
    numbered(core, 2)
    forget(core, idle, 6_000, 10)
    assert producers(core) == {1, 2}


def test_a_leader_whose_clock_is_behind_makes_no_active_producer_idle() -> None:
    """Its records have the time of the newest one before it until its clock has come there."""
    core = CoreDriver()
    numbered(core, 1)
    core.now_ms += 9 * DAY_MS
    numbered(core, 2)
    idle = IdleProducers(core.state, DAY_MS)  # After a restart: nothing of its own is written yet.
    clock_ms, sequence = 5_000, 2
    forget(core, idle, clock_ms, 1)
    core.now_ms -= 9 * DAY_MS
    core.restart()  # Another leader, whose clock is behind.
    for _ in range(DAY_MS // PRODUCER_SAMPLE_MS + 2):
        clock_ms += PRODUCER_SAMPLE_MS
        core.now_ms += PRODUCER_SAMPLE_MS
        numbered(core, 1, sequence=sequence)
        sequence += 1
        forget(core, idle, clock_ms, 2)
        assert 1 in producers(core), "it was heard just now"
    times_ms = [record.time_ms for record in core.records]
    assert times_ms == sorted(times_ms) and times_ms[-1] > core.wall_ms
    numbered(core, 3)
    core.now_ms += 9 * DAY_MS  # The clock has come to where the records are: times of records go on.
    for _ in range(DAY_MS // PRODUCER_SAMPLE_MS + 3):
        clock_ms += PRODUCER_SAMPLE_MS
        core.now_ms += PRODUCER_SAMPLE_MS
        numbered(core, 3, sequence=sequence)
        sequence += 1
        forget(core, idle, clock_ms, 2)
    assert 1 not in producers(core) and 3 in producers(core), "silence is noticed once the clock has caught up"


def test_reclaim_rows_come_by_cost_and_none_is_forgotten_when_there_are_too_many() -> None:
    tables = MemoryTables()
    reclaims = ReclaimList(tables)
    assert reclaims.take(RECLAIM_COST_PER_TURN) == []
    queues = [RECLAIM_QUEUE + number.to_bytes(8, "big") for number in range(50)]
    for key in queues:
        tables.reclaim.put(key, dropped_row(tables, bindings=10_000))
    reclaims.note(queues)
    first = reclaims.take(RECLAIM_COST_PER_TURN)
    assert first == queues[: RECLAIM_COST_PER_TURN // RECLAIM_QUEUE_COST + 1]
    many = [RECLAIM_KEY + number.to_bytes(8, "big") for number in range(1000)]
    for key in many:
        tables.local_hints.put(key[1:], HINT)
    reclaims.note(many)
    reclaims.note([b"k" + bytes(8)] * RECLAIM_NOTED_MAX)  # More than is kept in mind: the table is walked.
    found: set[bytes] = set()
    while keys := reclaims.take(RECLAIM_COST_PER_TURN):
        found.update(keys)
    assert found >= {*queues, *many}


def test_small_queues_that_were_dropped_are_reclaimed_many_at_a_time() -> None:
    tables = MemoryTables()
    reclaims = ReclaimList(tables)
    queues = [RECLAIM_QUEUE + number.to_bytes(8, "big") for number in range(1_000)]
    for key in queues:
        tables.reclaim.put(key, dropped_row(tables, bindings=9))
    reclaims.note(queues)
    taken = reclaims.take(RECLAIM_COST_PER_TURN)
    each = 9 + RECLAIM_KEY_COST
    assert len(taken) == -(-RECLAIM_COST_PER_TURN // each), "by what they have, not by the most that they may have"
    walking = ReclaimList(tables)
    assert len(walking.take(RECLAIM_COST_PER_TURN)) == len(taken), "after a start, too"


def dropped_row(tables: Tables, bindings: int) -> bytes:
    queue = Queue(tables, bytes(8), b"a queue", DURABLE)
    queue.bindings = bindings
    return queue.encode()
