"""Looks up what several parts of the core need: a key by its id, a member, what a binding has done."""

from __future__ import annotations

from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import decode_detail, detail_key
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, decode_log
from shoal_slice_node.core.tables.tables import Tables

_NONE_DONE = Ranges()


def key_by_id(tables: Tables, key_id: bytes) -> tuple[bytes, bytes] | None:
    """Returns the key's full name and row; None if the key vanished."""
    full_name = tables.key_name.get(key_id)
    row = None if full_name is None else tables.key.get(full_name)
    return None if full_name is None or row is None else (full_name, row)


def row_start(tables: Tables, key: KeyRow, offset: int) -> int:
    """Returns the first offset of the log row that holds `offset`: logs are trimmed by whole rows."""
    if key.low < offset < key.head:
        return next(tables.log.heads(key.id, key.low, offset))[0]
    return offset


def first_header(tables: Tables, key: KeyRow) -> LogRow:
    """Returns the header of the first row that a key keeps. It must keep one."""
    return decode_log(next(tables.log.heads(key.id, key.low, key.low))[1])


def bound_key(tables: Tables, key_id: bytes) -> tuple[bytes, bytes]:
    """Returns the same as `key_by_id`, for a key that has a binding and therefore exists."""
    found = key_by_id(tables, key_id)
    assert found is not None, f"something is bound to key {key_id.hex()}, which is not there"
    return found


def done_of(tables: Tables, queue: Queue, key_id: bytes) -> Ranges:
    """Returns the done ranges of a binding. The caller must not change them."""
    row = tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
    return _NONE_DONE if row is None else decode_detail(row).done


def kept_part(low: int, cursor: int, done: Ranges) -> tuple[int, Ranges]:
    """Returns the cursor and done ranges that a binding really has. `low`: its key's. What is below counts as done: no
    row of a binding changes when a key gives up its oldest messages."""
    return (cursor, done) if low <= cursor else (low, done.above(low))


def backlog_of(cursor: int, end: int, done: Ranges) -> int:
    """Returns how many messages a binding still has to get. `end`: the binding's end, or the key's head. `cursor`,
    `done`: as `kept_part` returns them."""
    return max(0, end - cursor - done.offsets())
