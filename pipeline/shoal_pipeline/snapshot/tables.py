"""Reads the rows of a store's tables, over a range. Pure over the slice node's tables, which store.py opens.

A range is one of partitions (table keys) or of queue ids (all other tables). Ranges are disjoint and together cover
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import takewhile

from shoal_contract.names import text
from shoal_pipeline.limits import KEY_NAMES_CACHED
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.read.memberships import memberships_of
from shoal_slice_node.core.read.reading import describe_queue
from shoal_slice_node.core.rows.detail_row import count_done_offsets
from shoal_slice_node.core.rows.ids import queue_id
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key
from shoal_slice_node.core.rows.small_rows import NEXT_QUEUE
from shoal_slice_node.core.tables.tables import Tables

Row = tuple[object, ...]


def bounds_of(tables: Tables, table: str) -> tuple[int, int]:
    """Returns the bounds first <= number < end: of partitions or queue ids."""
    if table == "keys":
        return 0, 1 << 16
    row = tables.meta.get(NEXT_QUEUE)
    return 1, 1 if row is None else int.from_bytes(row, "big")


def rows_of(tables: Tables, table: str, first: int, end: int) -> Iterator[Row]:
    """Yields rows without the column slice."""
    return _TABLES[table](tables, first, end)


def _queues_between(tables: Tables, first: int, end: int) -> Iterator[Queue]:
    until = queue_id(end)
    for row_id, row in takewhile(lambda pair: pair[0] < until, tables.queue.scan(start=queue_id(first))):
        yield Queue.decode(tables, row_id, row)


def _queues(tables: Tables, first: int, end: int) -> Iterator[Row]:
    for queue in _queues_between(tables, first, end):
        yield text(queue.name), queue.bindings, queue.options.expires_after_s


def _keys(tables: Tables, first: int, end: int) -> Iterator[Row]:
    start, until = first.to_bytes(2, "big"), end.to_bytes(3, "big")
    for full_name, row in tables.key.scan(start=start):
        if b"\0" + full_name[:2] >= until:
            return
        key = decode_key(row)
        partition = int.from_bytes(full_name[:2], "big")
        yield text(full_name[2:]), partition, tables.binding.count(key.id), key.head, key.low


def _bindings(tables: Tables, first: int, end: int) -> Iterator[Row]:
    state = State(tables, Interest())

    @lru_cache(KEY_NAMES_CACHED)
    def key_of(key_id: bytes) -> tuple[str, int, KeyRow]:
        found = state.key_by_id(key_id)
        assert found is not None, f"bound to key {key_id.hex()}, which is not there"
        return text(found[0][2:]), int.from_bytes(found[0][:2], "big"), found[1]

    for queue in _queues_between(tables, first, end):
        shown = text(queue.name)
        for key_id, start, cursor, ended_at, detail in memberships_of(tables, queue):
            name, partition, key = key_of(key_id)
            done = 0 if detail is None else count_done_offsets(detail)
            yield shown, name, partition, start, cursor, ended_at or None, (ended_at or key.head) - cursor - done


def _backlog(tables: Tables, first: int, end: int) -> Iterator[Row]:
    state = State(tables, Interest())
    for queue in _queues_between(tables, first, end):
        found = describe_queue(state, queue.name, 0)
        if found.messages:
            oldest = datetime.fromtimestamp(found.oldest_ms / 1000, UTC)
            yield text(queue.name), found.messages, found.body_bytes, oldest


_TABLES: dict[str, Callable[[Tables, int, int], Iterator[Row]]] = {
    "queues": _queues,
    "keys": _keys,
    "bindings": _bindings,
    "backlog": _backlog,
}
