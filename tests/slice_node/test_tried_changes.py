"""A change can be tried on an overlay and dropped: what verbs add to totals and events is in its effects alone."""

from __future__ import annotations

from typing import Any

from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import GROUP_TABLES, ROW_TABLES
from shoal_slice_node.core.verbs.changes import check_change
from shoal_slice_node.core.verbs.engine import Engine
from tests.slice_node.core_driver import CoreDriver, bind, declare, drop, publish, purge, unbind
from tests.slice_node.memory_base import MemoryBase


def all_rows(tables: MemoryTables) -> dict[str, list[Any]]:
    return {name: sorted(getattr(tables, name).scan()) for name in (*ROW_TABLES, *GROUP_TABLES, "log")}


def totals(engine: Engine) -> tuple[int, ...]:
    state = engine.state
    counters, kept = state.counters, state.kept
    counted = (counters.declares, counters.binds, counters.unbinds, counters.publishes, counters.chunks)
    return *counted, counters.drops, counters.purges, counters.refusals, kept.messages, kept.body_bytes


def test_a_tried_change_leaves_nothing_behind_and_tells_what_it_would_do() -> None:
    base = MemoryBase()
    core = CoreDriver(base.tables)
    core.change(declare("q1", "q2"), bind("q1", "a"), bind("q2", "a", "b"), publish("a", b"one", b"two"))
    engine = core.engine
    steps = [
        declare("q3"),
        bind("q3", "a", "c"),
        publish("a", b"three"),
        publish("nothing is bound to it", b"four", mandatory=True),
        unbind("q1", "a", discard=True),
        purge("q2", "none"),
        drop("q2"),
    ]
    data = wire.Change(steps=steps).SerializeToString()
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    record = Record(Kind.CHANGE, 0, engine.state.lsn + 1, 1, 7, payload)
    rows, before = all_rows(base.tables), totals(engine)
    tried = Engine(Delta(base)).apply(record, check_change(data))
    assert (all_rows(base.tables), totals(engine)) == (rows, before)
    done = engine.apply(record, check_change(data))
    assert (tried.outcome, tried.events, tried.advanced) == (done.outcome, done.events, done.advanced)
    assert (tried.kept_messages, tried.kept_bytes) == (done.kept_messages, done.kept_bytes) == (1, 5)
    assert all_rows(base.tables) != rows
    assert [now - was for now, was in zip(totals(engine), before, strict=True)] == [1, 2, 1, 1, 1, 1, 1, 2, 1, 5]
