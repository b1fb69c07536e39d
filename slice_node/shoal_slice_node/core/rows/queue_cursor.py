"""Reads or moves one cursor of a queue row in place: what acks and trims need, without decoding every binding.

Queues of more than one bucket or with detail rows are left to queues.Queue: both functions then return None.
"""

from __future__ import annotations

from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.queue_row import FORMS_WITH_CURSORS, HEADER


def read_cursor(row: bytes, key_id: bytes) -> int | None:
    """Returns the cursor of a live binding; None: decode the row to look for it."""
    place = _place(row, key_id)
    return None if place is None else int.from_bytes(row[place[0] : sum(place)], "big")


def move_cursor(row: bytes, key_id: bytes, first: int, to: int) -> bytes | None:
    """Returns the row after an ack of first <= offset < to; None: decode the row to apply the ack."""
    place = _place(row, key_id)
    if place is None:
        return None
    position, width = place
    cursor = int.from_bytes(row[position : position + width], "big")
    if first > cursor or to >> (8 * width):
        return None
    if to <= cursor:
        return row
    return row[:position] + to.to_bytes(width, "big") + row[position + width :]


def _place(row: bytes, key_id: bytes) -> tuple[int, int] | None:
    """Returns the cursor's position in the row, and its number of bytes; None: decode the row."""
    form, name_bytes, count, extra_buckets, _, details, options_bytes, _ = HEADER.unpack_from(row)
    if extra_buckets or details or form not in FORMS_WITH_CURSORS:
        return None
    ids = HEADER.size + name_bytes + options_bytes
    starts = ids + ID_BYTES * count
    found = row.find(key_id, ids, starts)
    while found >= 0 and (found - ids) % ID_BYTES:
        found = row.find(key_id, found + 1, starts)
    if found < 0:
        return None
    width = form & 15
    return starts + width * (count + (found - ids) // ID_BYTES), width
