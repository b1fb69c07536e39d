"""Reads the cursor of one binding, by queue id and key id; decodes as little as possible."""

from __future__ import annotations

from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.rows.detail_row import cursor_and_end, detail_key
from shoal_slice_node.core.rows.queue_cursor import read_cursor
from shoal_slice_node.core.tables.tables import Tables


def cursor_of_live(tables: Tables, queue_id: bytes, key_id: bytes, _: int) -> int | None:
    """Returns the lowest offset that a live binding has not done, which may be below its key's low. None: it is not
    bound, or its queue was dropped."""
    row = tables.queue.get(queue_id)
    if row is None:
        return None
    cursor = read_cursor(row, key_id)
    if cursor is not None:
        return cursor
    bucket = Queue.decode(tables, queue_id, row).bucket(key_id)
    return bucket.cursor(key_id) if key_id in bucket.starts else None


def cursor_of_ended(tables: Tables, queue_id: bytes, key_id: bytes, low: int) -> int | None:
    """Returns the lowest offset that an ended binding has not done. None: it did not end with a backlog, or its backlog
    is gone; also where all of it is below `low`, the lowest offset that its key keeps."""
    row = tables.detail.get(detail_key(queue_id, key_id))
    if row is None:
        return None
    cursor, end = cursor_and_end(row)
    return cursor if end > low else None
