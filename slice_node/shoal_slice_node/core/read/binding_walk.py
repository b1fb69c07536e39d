"""Walks over all bindings of a queue, a bounded number at a time: bucket by bucket, then those that ended with a
backlog.

Between two steps the queue may change. If it grows, bindings move to higher buckets; the walk meets them again and then
leaves them out. If it shrinks, bindings move to lower buckets, so the walk begins anew. Every binding that stays as it
is comes exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from shoal_slice_node.core.apply.lookups import done_of, kept_part
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import LOAD_DETAILS_PER_STEP, WALKED_RANGES_PER_STEP
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import count_ranges, decode_detail, detail_key
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id


class Binding(NamedTuple):
    """Describes one binding of the walk. `end` 0: still bound."""

    key_id: bytes
    start: int
    cursor: int
    end: int
    done: Ranges

    def kept_from(self, low: int) -> Binding:
        """Returns the binding as it is for a key that keeps messages from `low` on."""
        if low <= self.cursor:
            return self
        cursor, done = kept_part(low, self.cursor, self.done)
        return self._replace(cursor=cursor, done=done)


def walk_bindings(state: State, queue_id: bytes) -> Iterator[list[Binding]]:
    """Yields batches of bindings, with up to WALKED_RANGES_PER_STEP done ranges and those of one binding more. If the
    queue is dropped on the way, no more bindings follow."""
    number = seen_buckets = 0
    met: set[bytes] = set()
    while (queue := state.load_queue_by_id(queue_id)) is not None:
        if queue.extra_buckets < seen_buckets:
            number = 0
        seen_buckets = queue.extra_buckets
        if number > seen_buckets:
            break
        found, is_whole = _some_of(state, queue, number, met)
        yield found
        number += is_whole
    yield from _ended(state, queue_id, met)


def _some_of(state: State, queue: Queue, number: int, met: set[bytes]) -> tuple[list[Binding], bool]:
    """Returns bindings of one bucket that were not met yet, and whether these are all."""
    bucket = queue.numbered_bucket(number)
    found: list[Binding] = []
    ranges = 0
    for key_id, start in bucket.starts.items():
        if key_id in met:
            continue
        if ranges >= WALKED_RANGES_PER_STEP:
            return found, False
        done = done_of(state.tables, queue, key_id)
        ranges += len(done)
        met.add(key_id)
        found.append(Binding(key_id, start, bucket.cursor(key_id), 0, done))
    return found, True


def _ended(state: State, queue_id: bytes, met: set[bytes]) -> Iterator[list[Binding]]:
    after = bytes(ID_BYTES)
    while (queue := state.load_queue_by_id(queue_id)) is not None and queue.details:
        found: list[Binding] = []
        ranges = count = 0
        rows = state.tables.detail.scan(queue_id, detail_key(queue_id, after))
        for row_key, row in islice(rows, LOAD_DETAILS_PER_STEP):
            count += 1  # noqa: SIM113 - it is read after the loop
            key_id = row_key[ID_BYTES:]
            after = next_id(key_id)
            if key_id not in met:
                detail = decode_detail(row)
                if detail.ended:
                    found.append(Binding(key_id, detail.start, detail.cursor, detail.end, detail.done))
            ranges += count_ranges(row)
            if ranges >= WALKED_RANGES_PER_STEP:
                break
        else:
            if count < LOAD_DETAILS_PER_STEP:
                yield found
                return
        yield found
