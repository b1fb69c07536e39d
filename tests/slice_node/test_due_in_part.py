"""A DUE record of which the tables hold a part goes on behind that part, whatever its rows do to each other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.journal_record import Record, encode_record
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import recovery
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.records import Kind, decode_due
from shoal_slice_node.core.invariants.checksums import checksum_of_all, checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import EXPIRED_ROWS_PER_STEP
from shoal_slice_node.core.node.freezing import Freezing
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.small_rows import IN_PART
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.storage.journal_files import Journal
from tests.fuzz import small_limits

from .core_driver import CoreDriver, bind, configure, declare, publish

SEEDS = 40
POLICIES = ("drop_oldest", "reject")


def replayed(records: list[Record], at: int, steps: int) -> Replica:
    """The records before `at`, and that one: if `steps`, first as many steps of it, saved as a part. Raises
    StopIteration if it has fewer."""
    tables = MemoryTables()
    replica = Replica(tables)
    for record in records[:at]:
        replica.apply(record)
    if steps:
        work = replica.in_steps(records[at])
        for _ in range(steps):
            next(work)
        lsn = replica.save_part()
        replica.state.save_local()
        replica = Replica(tables, lsn)
    replica.apply(records[at])
    replica.state.save_local()
    assert tables.local_totals.get(IN_PART) is None
    assert not list(check_tables(tables, True))
    return replica


def state_of(replica: Replica) -> tuple[str, int, int]:
    state = replica.state
    return checksum_of_all(finish(checksums(state.tables))), state.kept.messages, state.kept.body_bytes


def only_due_record(policy: str) -> tuple[CoreDriver, int]:
    """A key with more expired rows of one ms than a record looks at, and a delayed publish to it, both due in one
    record. Returns where that is."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k", *(f"k{number}" for number in range(30))))
    core.change(configure("k", KeyOptions(capacity_messages=1000, policy=policy)))
    for _ in range(2):
        core.change(*(publish("k", b"x", ttl_ms=100) for _ in range(EXPIRED_ROWS_PER_STEP * 7 // 10)))
    core.change(configure("k", KeyOptions(capacity_messages=200, policy=policy)))
    at_ms = core.wall_ms + 150
    core.change(publish("k", *[b"d"] * 50, not_before_ms=at_ms))
    core.change(*(publish(f"k{number}", b"d", not_before_ms=at_ms) for number in range(30)))
    before = len(core.records)
    core.now_ms += 200
    core.node.tick(core.now_ms, core.wall_ms)
    core.commit()
    (at,) = [at for at, record in enumerate(core.records) if at >= before and record.kind == Kind.DUE]
    return core, at


@pytest.mark.parametrize("policy", POLICIES)
def test_a_low_that_rises_otherwise_within_the_record_is_no_second_time(policy: str) -> None:
    """A delayed publish that makes room makes the key's row anew, at a time that the record names: it was found again,
    and 512 rows more were given up. A publish that had been refused was then stored."""
    core, at = only_due_record(policy)
    named = {due.row_key for due in decode_due(core.records[at].payload)}
    assert named.intersection(row_key for row_key, _ in core.tables.due.scan()), "this test is of no use"
    core.change(configure("k", KeyOptions(capacity_messages=200)))
    after = [core.change(publish("k", *[b"much"] * 60)).steps[0]]
    core.change(configure("k", KeyOptions()))
    after.append(core.change(publish("k", b"taken")).steps[0])
    assert bool(after[0].refusals) == (policy == "drop_oldest")
    once = state_of(replayed(core.records, at, 0))
    for steps in (1, 2):
        replica = replayed(core.records, at, steps)
        assert state_of(replica) == once
        outcomes = [replica.apply(record).outcome for record in core.records[at + 1 :]]
        answers = [wire.Outcome.FromString(outcome).steps[0] for outcome in outcomes if outcome]
        assert [answer for answer in answers if answer.offsets or answer.refusals] == after


def random_changes(core: CoreDriver, chance: random.Random) -> None:
    key, some = chance.choice("ab"), chance.random()
    if some < 0.25:
        messages, body_bytes = chance.choice((0, 2, 5)), chance.choice((0, 10))
        policy = "drop_oldest" if messages + body_bytes and chance.random() < 0.6 else "reject"
        history = chance.choice((0, 0, 1)), chance.choice((0, 0, 1))
        core.change(configure(key, KeyOptions(*history, messages, body_bytes, policy)))
    elif some < 0.65:
        ttl_ms = chance.choice((0, 50, 50, 100))
        counts = [chance.choice((1, 2)) for _ in range(chance.randint(1, 5))]
        core.change(*(publish(key, *[b"x"] * count, ttl_ms=ttl_ms) for count in counts))
    else:
        for _ in range(chance.randint(1, 4)):
            at_ms, ttl_ms = core.wall_ms + chance.choice((50, 60, 100)), chance.choice((0, 1, 50))
            chunk = [b"d"] * chance.choice((1, 3))
            core.change(publish(chance.choice("ab"), *chunk, not_before_ms=at_ms, ttl_ms=ttl_ms))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_records_do_the_same_from_each_of_their_steps_on(seed: int) -> None:
    chance = random.Random(seed)
    limits = ("EXPIRED_ROWS_PER_STEP", "APPLIED_PER_STEP", "EXPIRED_ROWS_AT_CAPACITY")
    with small_limits.patched(dict.fromkeys(limits, 1) | {"EXPIRED_ROWS_PER_RECORD": 3}):
        core = CoreDriver()
        core.change(declare("q", "p"), bind("q", "a", "b"), bind("p", "a"))
        for _ in range(8):
            for _ in range(chance.randint(2, 6)):
                random_changes(core, chance)
            core.now_ms += chance.choice((30, 60, 120, 300))
            core.maintain()
        for at, record in enumerate(core.records):
            if record.kind == Kind.DUE:
                once = state_of(replayed(core.records, at, 0))
                for steps in range(1, len(decode_due(record.payload)) + 1):
                    assert state_of(replayed(core.records, at, steps)) == once, (at, steps)


def test_the_part_is_of_one_record_of_one_epoch() -> None:
    core, at = only_due_record("reject")
    replica = Replica(MemoryTables())
    for record in core.records[:at]:
        replica.apply(record)
    for _ in replica.in_steps(core.records[at]):
        break
    replica.save_part()
    state = Replica(replica.state.tables, replica.state.lsn).state
    state.lsn = core.records[at].lsn
    assert state.begin_rows() == 1
    state.epoch += 1
    assert state.begin_rows() == 0
    state.epoch -= 1
    state.lsn += 1
    assert state.begin_rows() == 0


async def test_a_start_that_ends_within_the_record_leaves_the_rest_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start freezes an oversized tail within the record, and ends before it freezes again."""
    core, _ = only_due_record("drop_oldest")
    journal = Journal.open(tmp_path / JOURNAL_FOLDER)
    for one in core.records:
        journal.append(encode_record(one.kind, one.lsn, one.epoch, one.time_ms, one.payload), one.lsn, one.lsn)
    journal.close()

    def is_within(store: Store, freezing: Freezing) -> bool:
        return not store.freezing and freezing._state.rows_done > 0

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "_is_oversized", is_within)
        recovered = await recover(tmp_path)
        await recovered.close()
    store = await Store.open(tmp_path / STORE_FOLDER)
    assert store.tables.local_totals.get(IN_PART) is not None
    assert not list(check_tables(store.tables, False))
    await store.close()
    recovered = await recover(tmp_path)
    try:
        tables = recovered.replica.state.tables
        assert checksum_of_all(finish(checksums(tables))) == checksum_of_all(finish(checksums(core.tables)))
        assert recovered.replica.state.kept.messages == core.state.kept.messages
        assert tables.local_totals.get(IN_PART) is None and not list(check_tables(tables, False))
    finally:
        await recovered.close()
