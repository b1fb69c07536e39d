"""All bindings of a queue, a bounded number at a time: bucket by bucket, then those that ended with a backlog.

Between two steps the queue may change. One that grows moves bindings up, to be met again, and they are left out then;
one that shrinks moves them down, so the walk begins anew. Every binding that stays as it is comes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from shoal_slice_node.core.limits import LOAD_DETAILS_PER_STEP
from shoal_slice_node.core.lookups import done_of
from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import decode_detail, detail_key
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id
from shoal_slice_node.core.state import State


class Binding(NamedTuple):
    """`end` 0: still bound."""

    key_id: bytes
    start: int
    cursor: int
    end: int
    done: Ranges


def walk_bindings(state: State, queue_id: bytes) -> Iterator[list[Binding]]:
    """Yields batches; a queue that is dropped on the way has no more."""
    number = seen_buckets = 0
    met: set[bytes] = set()
    while (queue := state.load_queue_by_id(queue_id)) is not None:
        if queue.extra_buckets < seen_buckets:
            number = 0
        seen_buckets = queue.extra_buckets
        if number > seen_buckets:
            break
        yield _bucket(state, queue, number, met)
        number += 1
    yield from _ended(state, queue_id, met)


def _bucket(state: State, queue: Queue, number: int, met: set[bytes]) -> list[Binding]:
    bucket = queue.numbered_bucket(number)
    found = [
        Binding(key_id, start, bucket.cursor(key_id), 0, done_of(state.tables, queue, key_id))
        for key_id, start in bucket.starts.items()
        if key_id not in met
    ]
    if queue.extra_buckets:
        met.update(binding.key_id for binding in found)
    return found


def _ended(state: State, queue_id: bytes, met: set[bytes]) -> Iterator[list[Binding]]:
    after = bytes(ID_BYTES)
    while (queue := state.load_queue_by_id(queue_id)) is not None and queue.details:
        rows = list(islice(state.tables.detail.scan(queue_id, detail_key(queue_id, after)), LOAD_DETAILS_PER_STEP))
        details = [(row_key[ID_BYTES:], decode_detail(row)) for row_key, row in rows]
        yield [
            Binding(key_id, detail.start, detail.cursor, detail.end, detail.done)
            for key_id, detail in details
            if detail.ended and key_id not in met
        ]
        if len(rows) < LOAD_DETAILS_PER_STEP:
            return
        after = next_id(details[-1][0])
