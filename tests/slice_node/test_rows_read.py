"""Scans that are read in part read the rows that they give, and not the table to its end, on both cores.

The compiled core made a list of all rows before it gave the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.farewells import _QueuesWithFarewell
from shoal_slice_node.core.dispatch.left_clock import LeftQueues
from shoal_slice_node.core.dispatch.transients import _TransientQueues
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.limits import CHECKSUM_STEP_ROWS, LEFT_WALKED_PER_TURN
from shoal_slice_node.core.rows.farewell_row import queue_key
from shoal_slice_node.core.tables.delta import Base, Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOCAL_TABLES, LOG_TABLE, ROW_TABLES, Tables

from .memory_base import MemoryBase

ROWS = 20 * max(CHECKSUM_STEP_ROWS, LEFT_WALKED_PER_TURN)
ROW = b"\x01"
KEY_ID = bytes(8)


class Counted:
    """A table that counts the rows that are read of it by scans."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.read = 0

    def scan(self, *which: Any, **named: Any) -> Iterator[Any]:
        for row in self._table.scan(*which, **named):
            self.read += 1
            yield row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class CountedTables(SimpleNamespace):
    def __init__(self, tables: MemoryTables) -> None:
        names = (*ROW_TABLES, *LOCAL_TABLES, *GROUP_TABLES, LOG_TABLE)
        super().__init__(**{name: Counted(getattr(tables, name)) for name in names})

    @property
    def read(self) -> int:
        return sum(cast(Counted, table).read for table in vars(self).values())


def numbered(count: int) -> Iterator[bytes]:
    return (number.to_bytes(8, "big") for number in range(count))


def never(_: bytes) -> bool:
    return False


@pytest.mark.parametrize("kind", [_TransientQueues, _QueuesWithFarewell])
def test_a_turn_of_a_walk_over_queues_reads_no_more_rows_than_it_looks_at(
    kind: Callable[[State, Callable[[bytes], bool]], LeftQueues],
) -> None:
    memory = MemoryTables()
    for queue_id in numbered(ROWS):
        memory.transient.put(queue_id, ROW)
        memory.farewell.put(queue_key(queue_id), ROW)
    tables = CountedTables(memory)
    state = State(cast(Tables, tables), Interest())
    before = tables.read
    ids = kind(state, never).ids(bytes(8))
    assert [next(ids) for _ in range(3)] == list(numbered(3))
    assert tables.read - before <= 4


@pytest.mark.parametrize("table", ["queue", LOG_TABLE])
def test_a_step_of_checksums_reads_no_more_rows_than_it_sums_up(table: str) -> None:
    memory = MemoryTables()
    for number, row_key in enumerate(numbered(ROWS)):
        if table == LOG_TABLE:
            memory.log.append(KEY_ID, number + 1, ROW)
        else:
            memory.queue.put(row_key, ROW)
    tables = CountedTables(memory)
    work = checksums(cast(Tables, tables))
    next(work)
    assert 0 < tables.read <= CHECKSUM_STEP_ROWS + 1


def test_a_log_that_was_trimmed_in_a_delta_is_read_as_far_as_it_is_taken() -> None:
    base = MemoryBase()
    for offset in range(1, ROWS + 1):
        base.tables.log.append(KEY_ID, offset, ROW)
    logs = Counted(base.tables.log)
    delta = Delta(cast(Base, SimpleNamespace(rows=base.rows, groups=base.groups, logs=lambda _: logs)))
    delta.log.trim(KEY_ID, 1, 11)
    assert next(delta.log.scan()) == (KEY_ID, 11, ROW)
    assert logs.read <= 12
