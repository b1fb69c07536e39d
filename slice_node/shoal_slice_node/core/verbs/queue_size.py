"""Tells how large queues and bindings are, for the prices of verbs."""

from __future__ import annotations

from itertools import repeat

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST, RANGES_PRICE_MAX
from shoal_slice_node.core.rows import queue_row
from shoal_slice_node.core.rows.detail_row import count_ranges, detail_key
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.tables.tables import Tables


def bindings_and_details(tables: Tables, name: bytes) -> tuple[int, int]:
    """Returns the numbers of a queue's bindings and details; zeros if it does not exist."""
    queue_id = tables.queue_by_name.get(name)
    row = None if queue_id is None else tables.queue.get(queue_id)
    return (0, 0) if row is None else queue_row.bindings_and_details(row)


def ranges_cost(state: State, step: wire.Binds | wire.Unbinds | wire.Imports) -> int:
    """Returns what the done ranges of the bindings that a step names cost to read and write, in operations, at most
    RANGES_PRICE_MAX."""
    tables, keys = state.tables, step.keys
    most = RANGES_PRICE_MAX * DONE_RANGES_PER_COST
    ranges = position = 0
    for name, count in zip(step.queues, step.key_counts or repeat(1), strict=False):
        first, position = position, position + count
        queue_id = tables.queue_by_name.get(name)
        row = None if queue_id is None else tables.queue.get(queue_id)
        if queue_id is None or row is None or not queue_row.bindings_and_details(row)[1]:
            continue
        for key in keys[first:position]:
            key_row = tables.key.get(state.unchecked_name(key))
            detail = None if key_row is None else tables.detail.get(detail_key(queue_id, key_row[ID]))
            ranges += 0 if detail is None else count_ranges(detail)
            if ranges >= most:
                return RANGES_PRICE_MAX
    return ranges // DONE_RANGES_PER_COST
