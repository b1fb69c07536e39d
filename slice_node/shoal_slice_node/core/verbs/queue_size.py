"""Tells how large a queue is, for the prices of verbs that end or look at all its bindings."""

from __future__ import annotations

from shoal_slice_node.core.rows import queue_row
from shoal_slice_node.core.tables.tables import Tables


def bindings_and_details(tables: Tables, name: bytes) -> tuple[int, int]:
    """Returns the numbers of a queue's bindings and details; zeros if it does not exist."""
    queue_id = tables.queue_by_name.get(name)
    row = None if queue_id is None else tables.queue.get(queue_id)
    return (0, 0) if row is None else queue_row.bindings_and_details(row)
