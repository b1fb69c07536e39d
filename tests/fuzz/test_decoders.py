"""Damages rows of a store and payloads of its records: each is found, or is harmless, and nothing else happens.

A row that cannot be decoded is a problem that `shoal check` tells; a payload that cannot be applied is Corrupt, with
the LSN. Bytes that can be read are read in bounded time. Seeds are fixed here; `python -m tests.fuzz.test_decoders
MINUTES` takes others.
"""

from __future__ import annotations

import sys
import time
from random import Random

import pytest

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import Record
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.verbs.engine import Engine
from tests.slice_node.core_driver import bind, configure, declare, drop, publish, unbind
from tests.slice_node.dead_letters_driver import DeadLettersDriver, declare_with

ROW_TABLES = (
    "key", "key_name", "queue_by_name", "queue", "membership", "detail", "producer", "reclaim", "transient", "due",
    "history", "partition", "meta", "local_totals", "local_hints",
)  # fmt: skip
RUNS = 150
STEP_S_MAX = 5.0


def story() -> list[Record]:
    """Records of every kind, that leave rows in every table."""
    core = DeadLettersDriver()
    bounded = QueueOptions(60, 5000, 2, b"dead", "newest")
    core.change(declare_with("q", bounded), declare("g", "gone", "many"), declare("t", expires_after_s=1))
    core.change(configure("h", KeyOptions(3, 60, 100, 1000)), configure("k", KeyOptions(2)))
    core.change(bind("q", "k", "h"), bind("g", "dead", "k"), bind("many", *(f"key {number}" for number in range(120))))
    core.change(publish("k", b"a", b"b", b"c"), publish("h", b"x"), publish("h", b"later", not_before_ms=9_000_000))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "k", 2, 3)
    core.again(session, 1, 2)
    core.take(session)
    core.again(session, 1, 2)
    core.nack(session, 3, 4)
    core.maintain()
    core.change(unbind("g", "k"), publish("k", b"d"), bind("gone", "k"), drop("gone"))
    core.settle()
    core.change(publish("h", b"due", not_before_ms=core.wall_ms + 100))
    core.flush()
    core.now_ms += 5_000
    core.maintain()
    core.now_ms += 5_000
    core.maintain()
    core.change(publish("dead", b"e"), head=ChangeHead(b"a producer's id!", 1, 0))
    names = [f"key {number}" for number in range(120)]
    core.change(
        declare("large"),
        declare("t", expires_after_s=9),
        bind("large", *names),
        drop("many"),
        drop("q"),
        publish("key 3", b"f"),
    )
    return core.records


RECORDS = story()


def replayed() -> MemoryTables:
    tables = MemoryTables()
    engine = Engine(tables)
    for record in RECORDS:
        engine.apply(record)
    return tables


def damaged(data: bytes, random: Random) -> bytes:
    """Cuts, adds, repeats, or changes some bytes."""
    at, to = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
    kind = random.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data + random.randbytes(random.choice((1, 1, 4, 40)))
    if kind == 2:
        return data[:at] + data[to:]
    if kind == 3:
        return data[:to] + data[at:to] + data[to:]
    if kind == 4:
        return random.randbytes(random.choice((0, 1, 8, 60)))
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 3))):
        if changed:
            changed[random.randrange(len(changed))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(changed)


def damage_a_row(random: Random) -> None:
    tables = replayed()
    table = random.choice(ROW_TABLES)
    rows = list(getattr(tables, table).scan())
    if rows:
        key, row = random.choice(rows)
        getattr(tables, table).put(key, damaged(row, random) or b"\x00")
    began = time.process_time()
    list(check_tables(tables))
    assert time.process_time() - began < STEP_S_MAX, f"a check of {table} takes for ever"


def damage_a_record(random: Random) -> None:
    engine = Engine(MemoryTables())
    number = random.randrange(len(RECORDS))
    for record in RECORDS[:number]:
        engine.apply(record)
    record = RECORDS[number]
    kind = record.kind if random.random() < 0.9 else random.randrange(12)
    changed = Record(kind, record.flags, record.lsn, record.epoch, record.time_ms, damaged(record.payload, random))
    began = time.process_time()
    try:
        engine.apply(changed)
    except Corrupt as error:
        assert error.value == record.lsn
    else:
        problems = list(check_tables(engine.state.tables, local_known=False))
        if kind == 1:  # Whatever a change holds that passes its check can be done.
            assert not problems, problems
    assert time.process_time() - began < STEP_S_MAX


@pytest.mark.parametrize("seed", range(2))
def test_damaged_rows_are_found_or_harmless(seed: int) -> None:
    for number in range(RUNS):
        damage_a_row(Random(f"row {seed}/{number}"))


@pytest.mark.parametrize("seed", range(2))
def test_damaged_records_are_applied_or_named(seed: int) -> None:
    for number in range(RUNS):
        damage_a_record(Random(f"record {seed}/{number}"))


def main(minutes: float) -> None:
    until, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        number += 1
        damage_a_row(Random(f"long row {number}"))
        damage_a_record(Random(f"long record {number}"))
    sys.stdout.write(f"{number} rows and records\n")


if __name__ == "__main__":
    main(float(sys.argv[1]))
