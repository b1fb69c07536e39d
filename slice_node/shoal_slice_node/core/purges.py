"""Purge: a queue's backlog goes at once, and it stays bound. Deterministic, and in bounded parts.

A part takes whole buckets of live bindings, lowest first, then ended bindings. Between two parts the queue may gain or
lose buckets: one that splits moves entries up, to be met again; where buckets were joined, the purge begins anew.
What is bound again between two parts, after it had ended with a backlog, may keep that: the part that would have taken
it finds it among the buckets that are done.

    position   u32 buckets that the queue had then (never 0) | u32 the bucket to go on with; equal: the ended ones
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
from shoal_slice_node.core.state import State


def purge(state: State, name: bytes, position: int, budget: BindingBudget) -> tuple[int, int]:
    """(messages dropped, position of what is left to purge; 0: nothing).

    Raises NoSuchQueue.
    """
    queue = existing_queue(state, name)
    buckets = queue.extra_buckets + 1
    seen_buckets, number = position >> 32, position & 0xFFFFFFFF
    if seen_buckets > buckets or number > seen_buckets:
        number = 0
    dropped = 0
    while number < buckets and budget.left > 0:
        dropped += _purge_bucket(state, queue, number, budget)
        number += 1
    done = False
    if number >= buckets and budget.left > 0:
        dropped += _purge_ended(state, queue, budget)
        done = budget.left > 0
    queue.save()
    buckets = queue.extra_buckets + 1
    return dropped, 0 if done else buckets << 32 | min(number, buckets)


def _purge_bucket(state: State, queue: Queue, number: int, budget: BindingBudget) -> int:
    bucket = queue.numbered_bucket(number)
    dropped = 0
    budget.left -= len(bucket.starts) + 1
    for key_id, start in bucket.starts.items():
        head = head_of(bound_key(state.tables, key_id)[1])
        cursor = bucket.cursor(key_id)
        if cursor >= head:
            continue
        messages = head - cursor
        if queue.details:
            messages -= _forget_detail(state, queue, key_id)
        bucket.put(key_id, start, head)
        dropped += messages
        _tell(state, queue, key_id, head)
    return dropped


def _forget_detail(state: State, queue: Queue, key_id: bytes) -> int:
    """Of a live binding that has one: nothing above its cursor is left to remember. How many messages were done."""
    row = state.tables.detail.get(detail_key(queue.id, key_id))
    if row is None:
        return 0
    state.tables.detail.delete(detail_key(queue.id, key_id))
    queue.details -= 1
    return decode_detail(row).done.offsets()


def _purge_ended(state: State, queue: Queue, budget: BindingBudget) -> int:
    """Ended bindings hold nothing but their backlog: they go."""
    dropped = 0
    rows = list(islice(state.tables.detail.scan(queue.id), budget.left)) if queue.details else []
    budget.left -= len(rows)
    for row_key, row in rows:
        detail = decode_detail(row)
        if detail.ended:
            dropped += backlog_of(detail.cursor, detail.end, detail.done)
            discard_ended(state, queue, row_key[KEY_ID])
    return dropped


def _tell(state: State, queue: Queue, key_id: bytes, head: int) -> None:
    state.effects.moved.append(key_id)
    if queue.id in state.watch.queues:
        state.effects.events.append(Purged(queue.id, key_id, head))
