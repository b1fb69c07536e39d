"""Purges queues: a queue's backlog is dropped at once, and it stays bound. Deterministic, and in bounded parts.

A part takes buckets of live bindings, lowest number first, then ended bindings. A bucket with many done ranges takes
several parts: each part begins the bucket anew, and skips bindings without a backlog. Between two parts the queue may
gain or lose buckets: a split moves entries to a higher bucket, where the purge meets them again; after a join the purge
begins anew.
Bindings with done ranges, live or ended, come in the last part: since their bucket's turn, some may have got done
ranges, or may have been bound again.

    position   u32 buckets that the queue had then (never 0) | u32 the bucket to go on with; equal: the last part
"""

from __future__ import annotations

from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import discard_ended, existing_queue
from shoal_slice_node.core.apply.effects import Purged
from shoal_slice_node.core.apply.lookups import backlog_of, bound_key
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import (
    KEY_ID,
    count_done_offsets,
    count_ranges,
    cursor_and_end,
    decode_detail,
    detail_key,
)
from shoal_slice_node.core.rows.key_row import head_of, low_of
from shoal_slice_node.core.rows.queue_row import Bucket


def purge(state: State, name: bytes, position: int, budget: BindingBudget) -> tuple[int, int]:
    """Purges a part of a queue. Returns (messages dropped, position of what is left to purge; 0: nothing is left).
    Without budget nothing is done.

    Raises NoSuchQueue.
    """
    queue = existing_queue(state, name)
    buckets = queue.extra_buckets + 1
    seen_buckets, number = position >> 32, position & 0xFFFFFFFF
    if seen_buckets > buckets or number > seen_buckets:
        number = 0
    if budget.remaining <= 0:
        return 0, buckets << 32 | min(number, buckets)
    dropped = 0
    while number < buckets and budget.remaining > 0:
        messages, is_whole = _purge_bucket(state, queue, number, budget)
        dropped += messages
        number += is_whole
    done = False
    if number >= buckets and budget.remaining > 0:
        dropped += _purge_details(state, queue, budget)
        done = budget.remaining > 0
    queue.save()
    buckets = queue.extra_buckets + 1
    return dropped, 0 if done else buckets << 32 | min(number, buckets)


def _purge_bucket(state: State, queue: Queue, number: int, budget: BindingBudget) -> tuple[int, bool]:
    """Returns (messages dropped, whether the bucket is finished). One binding that has done ranges is purged whatever
    it costs."""
    bucket = queue.numbered_bucket(number)
    budget.remaining -= len(bucket.starts) + 1
    dropped, met = 0, False
    for key_id in bucket.starts:
        key_row = bound_key(state.tables, key_id)[1]
        if bucket.cursor(key_id) >= head_of(key_row):
            continue
        row = state.tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
        if row is not None:
            if met and budget.remaining <= 0:
                return dropped, False
            budget.remaining -= _ranges_cost(row)
            met = True
        dropped += _purge_live(state, queue, bucket, key_id, key_row, row)
    return dropped, True


def _ranges_cost(row: bytes) -> int:
    return count_ranges(row) // DONE_RANGES_PER_COST


def _purge_live(state: State, queue: Queue, bucket: Bucket, key_id: bytes, key_row: bytes, row: bytes | None) -> int:
    """Purges a binding that has a backlog; returns the messages dropped. `row`: its detail, if it has one; it is
    deleted, since no done range above the cursor is left."""
    head = head_of(key_row)
    messages = _kept_backlog(key_row, bucket.cursor(key_id), head, row)
    if row is not None:
        state.tables.detail.delete(detail_key(queue.id, key_id))
        queue.details -= 1
    bucket.put(key_id, bucket.starts[key_id], head)
    _tell(state, queue, key_id, head)
    return messages


def _purge_details(state: State, queue: Queue, budget: BindingBudget) -> int:
    """Purges bindings with details; returns the messages dropped. Ended bindings hold only their backlog, so they are
    deleted."""
    dropped = 0
    for key_id, row in _some_details(state, queue, budget):
        cursor, end = cursor_and_end(row)
        key_row = bound_key(state.tables, key_id)[1]
        if end:
            dropped += _kept_backlog(key_row, cursor, end, row)
            discard_ended(state, queue, key_id)
            continue
        bucket = queue.bucket(key_id)
        if bucket.cursor(key_id) < head_of(key_row):
            dropped += _purge_live(state, queue, bucket, key_id, key_row, row)
    return dropped


def _kept_backlog(key_row: bytes, cursor: int, end: int, row: bytes | None) -> int:
    """Returns how many messages of its backlog a binding could still have got. `row`: its detail, if it has one."""
    low = low_of(key_row)
    if low <= cursor:
        return end - cursor - (0 if row is None else count_done_offsets(row))
    done = Ranges() if row is None else decode_detail(row).done
    return backlog_of(low, end, done.above(low))


def _some_details(state: State, queue: Queue, budget: BindingBudget) -> list[tuple[bytes, bytes]]:
    """Returns (key id, row) of as many details as the budget allows, and of at least one, if any are left."""
    found: list[tuple[bytes, bytes]] = []
    if not queue.details:
        return found
    for row_key, row in state.tables.detail.scan(queue.id):
        key_id = row_key[KEY_ID]
        found.append((key_id, row))
        budget.remaining -= 1 + _ranges_cost(row)
        if not cursor_and_end(row)[1]:
            budget.remaining -= len(queue.bucket(key_id).starts)
        if budget.remaining <= 0:
            break
    return found


def _tell(state: State, queue: Queue, key_id: bytes, head: int) -> None:
    state.effects.advanced.append(key_id)
    if queue.id in state.interest.queues:
        state.effects.events.append(Purged(queue.id, key_id, head))
