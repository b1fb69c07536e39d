"""The same records give the same tables: in memory, over a delta that freezes when it likes, from a checkpoint midway.

Only tables of a node's own may differ: what they hold depends on when the node made its checkpoints.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply import bind_backs
from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch
from shoal_slice_node.core.invariants import checksums as module
from shoal_slice_node.core.invariants.checksums import checksum_of_all, checksums
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import ROW_TABLES
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, bind, declare, publish
from .determinism_steps import KEYS, QUEUES, contents, replayed_by_starts, step
from .memory_base import MemoryBase


def history(random: Random, changes: int) -> CoreDriver:
    """A leader's: changes, consumers, and the maintenance that they cause."""
    core = CoreDriver()
    session = core.session()
    taken: tuple[AckBatch, int] | None = None
    for _ in range(changes):
        taken = taken or core.take_acks()
        core.change(*(step(random) for _ in range(random.randint(1, 4))))
        with contextlib.suppress(ShoalError):
            core.change(*(step(random) for _ in range(random.randint(1, 3))), atomic=True)
        if random.random() < 0.3:  # Their record comes after some others.
            core.apply_acks(*taken)
            taken = None
        handle = random.randrange(len(QUEUES))
        core.attach(session, QUEUES[handle], handle, messages=8)
        for delivery in core.deliveries(session):
            for handle in delivery.handles:
                if random.random() < 0.7:
                    core.ack(session, delivery.key.decode(), random.choice((0, delivery.low)), delivery.to, handle)
        if taken is None and random.random() < 0.3:
            core.flush()
        core.now_ms += 100
        core.maintain()
    if taken is not None:
        core.apply_acks(*taken)
    core.change(declare(*QUEUES), bind(QUEUES[0], *KEYS), *(publish(key, b"last") for key in KEYS[:20]))
    core.settle()
    return core


def replay(records: list[Record], random: Random, base: MemoryBase) -> Delta:
    """Over `base`, freezing and checkpointing at moments of its own."""
    delta = Delta(base)
    replica, frozen = Replica(delta), False
    for record in records:
        replica.apply(record)
        if random.random() < 0.1:
            if frozen:
                base.checkpoint(delta)
            else:
                delta.freeze()
            frozen = not frozen
    if frozen:
        base.checkpoint(delta)
    return delta


@pytest.mark.parametrize("seed", range(4))
def test_replay_comes_to_the_same_tables_whenever_it_makes_checkpoints(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bind_backs, "BIND_BACKS_NOTED_MAX", 1)
    random = Random(seed)
    core = history(random, 250)
    core.check()
    expected = contents(core.tables)
    assert contents(replay(core.records, random, MemoryBase())) == expected
    assert contents(replayed_by_starts(core.records)) == expected

    base = MemoryBase()
    middle = random.randrange(len(core.records))
    snapshot = replay(core.records[:middle], random, base)
    snapshot.freeze()
    base.checkpoint(snapshot)
    assert contents(replay(core.records[middle:], random, base)) == expected


def test_the_own_rows_of_a_node_are_in_no_checksum() -> None:
    tables = history(Random(1), 20).tables
    before = finish(checksums(tables))
    tables.local_hints.put(b"12345678", b"\x01")
    tables.local_totals.put(b"kept", b"\x01")
    assert finish(checksums(tables)) == before


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_row_changes_the_checksum_of_its_table_and_partition_only(seed: int) -> None:
    random = Random(seed)
    tables = history(random, 60).tables
    before = finish(checksums(tables))
    for table in ROW_TABLES:
        rows = getattr(tables, table)
        for key, value in random.sample(sorted(rows.scan()), min(3, rows.entries())):
            rows.put(key, value[:-1] + bytes([value[-1] ^ 1]))
            changed = [one for one in finish(checksums(tables)) if one not in before]
            assert [(one.table, one.partition) for one in changed] == [(table, partition_of(table, key))]
            assert checksum_of_all(finish(checksums(tables))) != checksum_of_all(before)
            rows.put(key, value)
    key_id, member = next(tables.binding.scan())
    tables.binding.remove(key_id, member)
    lost = {*before} - {*finish(checksums(tables))}
    assert {(one.table, one.partition) for one in lost} == {("binding", partition_of("binding", key_id))}
    tables.binding.add(key_id, member)
    assert finish(checksums(tables)) == before


def partition_of(table: str, key: bytes) -> int | None:
    """Says in a way of its own where a row belongs."""
    if table in ("key", "key_name", "partition", "binding"):
        return int.from_bytes(key[:2], "big")
    return int.from_bytes(key[8:10], "big") if table == "detail" else None


def test_checksums_are_computed_in_bounded_steps_and_tell_bytes_that_moved_between_key_and_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = MemoryTables()
    for number in range(10):
        tables.queue_by_name.put(b"q%d" % number, bytes(8))
    monkeypatch.setattr(module, "CHECKSUM_STEP_ROWS", 4)
    assert len(list(checksums(tables))) == 2
    monkeypatch.setattr(module, "CHECKSUM_STEP_BYTES", 8)
    assert len(list(checksums(tables))) == 10
    one, other = MemoryTables(), MemoryTables()
    one.meta.put(b"ab", b"c")
    other.meta.put(b"a", b"bc")
    assert finish(checksums(one)) != finish(checksums(other))
