"""Cuts the keys that a queue is bound to, or unbound from, into pieces: one for each step of a record."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP, DONE_RANGES_PER_COST
from shoal_slice_node.core.rows.detail_row import count_ranges, detail_key
from shoal_slice_node.core.rows.key_row import ID


def fits_step(state: State, queue: Queue, names: list[bytes], keys_max: int) -> bool:
    """Returns whether all names are one piece."""
    if len(names) > keys_max:
        return False
    return not queue.details or sum(_cost(state, queue, name) for name in names) <= APPLIED_PER_STEP


def pieces(state: State, queue: Queue, names: list[bytes], keys_max: int) -> Iterator[list[bytes]]:
    """Yields the names for each step: one name, or up to `keys_max` that cost at most APPLIED_PER_STEP. Between two
    pieces the queue should forget its buckets: each save would write all that were read."""
    if not queue.details:
        for position in range(0, len(names), keys_max):
            yield names[position : position + keys_max]
        return
    piece: list[bytes] = []
    left = APPLIED_PER_STEP
    for name in names:
        cost = _cost(state, queue, name)
        if piece and (cost > left or len(piece) == keys_max):
            yield piece
            piece, left = [], APPLIED_PER_STEP
        piece.append(name)
        left -= cost
    if piece:
        yield piece


def _cost(state: State, queue: Queue, full_name: bytes) -> int:
    """Returns what a bind or unbind of this key costs; a key without done ranges costs 1."""
    row = state.tables.key.get(full_name)
    detail_row = None if row is None else state.tables.detail.get(detail_key(queue.id, row[ID]))
    return 1 if detail_row is None else 1 + count_ranges(detail_row) // DONE_RANGES_PER_COST
