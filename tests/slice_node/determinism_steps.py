"""Records of all kinds, and the contents of tables."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import GROUP_TABLES, ROW_TABLES, Tables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import acks, bind, declare, drop, publish, unbind

QUEUES = [f"q{number}" for number in range(5)]
KEYS = [f"k{number}" for number in range(80)]


def contents(tables: Tables) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {name: list(getattr(tables, name).scan()) for name in ROW_TABLES}
    found["checksums"] = list(finish(checksums(tables)))
    for name in (*GROUP_TABLES, "log"):
        found[name] = list(getattr(tables, name).scan())
    return found


def replayed_by_starts(records: Sequence[Record]) -> MemoryTables:
    """What the records make of empty tables, if a node starts anew before each of them, with what the tables have."""
    tables = MemoryTables()
    for record in records:
        engine = Engine(tables)
        engine.state.lsn = record.lsn - 1
        engine.apply(record)
    return tables


def step(random: Random) -> wire.Step:
    queue, some = random.choice(QUEUES), random.sample(KEYS[: random.choice((4, 80))], random.choice((1, 2, 4)))
    kind = random.random()
    if kind < 0.1:
        return declare(queue)
    if kind < 0.13:
        return bind(queue, *KEYS)
    if kind < 0.35:
        return bind(queue, *some, start=random.choice(wire.Start.values()[:3]), value=2)
    if kind < 0.55:
        return unbind(queue, *some, discard=random.random() < 0.5)
    if kind < 0.6:
        return drop(queue)
    if kind < 0.65:
        low = random.randint(1, 30)
        return acks((queue, some[0], low, low + random.randint(1, 3)))
    return publish(random.choice((some[0], "@" + queue)), *(b"x" * random.randint(0, 9) for _ in range(3)))
