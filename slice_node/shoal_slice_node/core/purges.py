"""Purge: a queue's backlog goes at once, and it stays bound. Deterministic, and in bounded parts.

A part takes whole buckets of live bindings, lowest first, then ended bindings. Between two parts the queue may gain or
lose buckets: one that splits moves entries up, to be met again; where buckets were joined, the purge begins anew.
Bindings that have done ranges come in the last part, live or ended: some may have got them, or be bound again, since
their bucket's turn.

    position   u32 buckets that the queue had then (never 0) | u32 the bucket to go on with; equal: the last part
"""

from __future__ import annotations

from itertools import islice

from shoal_slice_node.core.binding_budget import BindingBudget
from shoal_slice_node.core.binds import discard_ended, existing_queue
from shoal_slice_node.core.effects import Purged
from shoal_slice_node.core.lookups import backlog_of, bound_key
from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.rows.detail_row import KEY_ID, decode_detail, detail_key
from shoal_slice_node.core.rows.key_row import head_of
from shoal_slice_node.core.rows.queue_row import Bucket
from shoal_slice_node.core.state import State


def purge(state: State, name: bytes, position: int, budget: BindingBudget) -> tuple[int, int]:
    """(messages dropped, position of what is left to purge; 0: nothing). Without budget nothing is done.

    Raises NoSuchQueue.
    """
    queue = existing_queue(state, name)
    buckets = queue.extra_buckets + 1
    seen_buckets, number = position >> 32, position & 0xFFFFFFFF
    if seen_buckets > buckets or number > seen_buckets:
        number = 0
    if budget.left <= 0:
        return 0, buckets << 32 | min(number, buckets)
    dropped = 0
    while number < buckets and budget.left > 0:
        dropped += _purge_bucket(state, queue, number, budget)
        number += 1
    done = False
    if number >= buckets and budget.left > 0:
        dropped += _purge_details(state, queue, budget)
        done = budget.left > 0
    queue.save()
    buckets = queue.extra_buckets + 1
    return dropped, 0 if done else buckets << 32 | min(number, buckets)


def _purge_bucket(state: State, queue: Queue, number: int, budget: BindingBudget) -> int:
    bucket = queue.numbered_bucket(number)
    budget.left -= len(bucket.starts) + 1
    return sum(_purge_live(state, queue, bucket, key_id) for key_id in bucket.starts)


def _purge_live(state: State, queue: Queue, bucket: Bucket, key_id: bytes) -> int:
    head = head_of(bound_key(state.tables, key_id)[1])
    messages = head - bucket.cursor(key_id)
    if messages <= 0:
        return 0
    if queue.details:
        messages -= _forget_detail(state, queue, key_id)
    bucket.put(key_id, bucket.starts[key_id], head)
    _tell(state, queue, key_id, head)
    return messages


def _forget_detail(state: State, queue: Queue, key_id: bytes) -> int:
    """Of a live binding that has one: nothing above its cursor is left to remember. How many messages were done."""
    row = state.tables.detail.get(detail_key(queue.id, key_id))
    if row is None:
        return 0
    state.tables.detail.delete(detail_key(queue.id, key_id))
    queue.details -= 1
    return decode_detail(row).done.offsets()


def _purge_details(state: State, queue: Queue, budget: BindingBudget) -> int:
    """Ended bindings hold nothing but their backlog: they go."""
    dropped = 0
    rows = list(islice(state.tables.detail.scan(queue.id), budget.left)) if queue.details else []
    for row_key, row in rows:
        if budget.left <= 0:
            break
        budget.left -= 1
        detail, key_id = decode_detail(row), row_key[KEY_ID]
        if detail.ended:
            dropped += backlog_of(detail.cursor, detail.end, detail.done)
            discard_ended(state, queue, key_id)
        else:
            bucket = queue.bucket(key_id)
            budget.left -= len(bucket.starts)
            dropped += _purge_live(state, queue, bucket, key_id)
    return dropped


def _tell(state: State, queue: Queue, key_id: bytes, head: int) -> None:
    state.effects.moved.append(key_id)
    if queue.id in state.watch.queues:
        state.effects.events.append(Purged(queue.id, key_id, head))
