"""Drops queues, and reclaims in bounded steps what they leave.

A dropped queue's name is free at once. A queue of one bucket, the usual case, gives up its bindings in the same step,
as long as the record's budget lasts. A larger queue, or one that is dropped beyond the budget, waits in `reclaim` and
gives up one bucket a turn; until then receipts still count it.
"""

from __future__ import annotations

from itertools import islice

from shoal_contract.errors import NoSuchQueue
from shoal_contract.names import DIRECT_PREFIX
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import discard_ended, end_binding, existing_queue
from shoal_slice_node.core.apply.lookups import bound_key
from shoal_slice_node.core.apply.producers import forget_producer
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import decode_reclaim
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import BUCKET_ENTRIES_MEAN
from shoal_slice_node.core.rows.detail_row import KEY_ID, detail_key
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.small_rows import RECLAIM_KEY, RECLAIM_PRODUCER, RECLAIM_QUEUE, decode_idle_producer


def drop(state: State, name: bytes, incarnation: int, budget: BindingBudget) -> int:
    """Drops a queue. `incarnation`: only this life of the queue; 0: the one there is. Returns the dropped incarnation.

    Raises NoSuchQueue.
    """
    queue = existing_queue(state, name)
    if incarnation and queue.incarnation not in (0, incarnation):
        shown = state.refusals.shown(name)
        raise NoSuchQueue(
            f"queue {shown} of incarnation {incarnation} is not here, and nothing is dropped: {queue.incarnation}, a"
            " later or earlier life, is",
            subject=shown,
            value=incarnation,
        )
    drop_queue(state, queue, budget)
    return queue.incarnation


def drop_queue(state: State, queue: Queue, budget: BindingBudget) -> None:
    """Drops a queue that exists. Bindings beyond the budget are ended in the background."""
    tables = state.tables
    tables.queue_by_name.delete(queue.name)
    tables.queue.delete(queue.id)
    if queue.options.expires_after_s:
        tables.transient.delete(queue.id)
    if queue.id in state.watch.queues:
        state.effects.dropped.append(queue.id)
    _end_direct(state, queue)
    if budget.left <= 0 or not _reclaim_step(state, queue, budget):
        state.put_reclaim(RECLAIM_QUEUE + queue.id, queue.encode())


def _end_direct(state: State, queue: Queue) -> None:
    """Ends the binding to the direct key at once, however many other bindings wait: messages sent from now on are for
    the next queue of this name."""
    full_name = state.unchecked_name(DIRECT_PREFIX + queue.name)
    row = state.tables.key.get(full_name)
    key_id = b"" if row is None else row[ID]
    if row is not None and key_id in queue.bucket(key_id).starts:
        end_binding(state, queue, key_id, row, discard=True)
        queue.bindings -= 1
        queue.save_bucket(key_id)


def _reclaim_step(state: State, queue: Queue, budget: BindingBudget) -> bool:
    """Ends the bindings of the last bucket, and discards some that had ended before. Returns True if none is left."""
    tables = state.tables
    bucket = queue.last_bucket()
    budget.left -= len(bucket.starts) + 1
    for key_id in list(bucket.starts):
        _forget_detail(state, queue, key_id)
        end_binding(state, queue, key_id, bound_key(tables, key_id)[1], discard=True)
        queue.bindings -= 1
    rows = islice(tables.detail.scan(queue.id), BUCKET_ENTRIES_MEAN if queue.details else 0)
    for key_id in [row_key[KEY_ID] for row_key, _ in rows]:
        budget.left -= 1
        discard_ended_or_live(state, queue, key_id)
    if queue.extra_buckets:
        queue.drop_last_bucket()
        return False
    return not queue.details


def _forget_detail(state: State, queue: Queue, key_id: bytes) -> None:
    """Deletes the detail row of a live binding that is about to end without a backlog. Otherwise `end_binding` would
    decode its done ranges first."""
    row_key = detail_key(queue.id, key_id)
    if queue.details and state.tables.detail.get(row_key) is not None:
        state.tables.detail.delete(row_key)
        queue.details -= 1


def discard_ended_or_live(state: State, queue: Queue, key_id: bytes) -> None:
    """Drops the backlog of an ended binding. A live binding's detail row is left: it goes with its binding, in a later
    step."""
    if key_id not in queue.bucket(key_id).starts:
        discard_ended(state, queue, key_id)


def reclaim(state: State, payload: bytes) -> None:
    """Applies a RECLAIM record, one turn: takes each named row one step further."""
    for row_key in decode_reclaim(payload):
        kind, subject = row_key[:1], row_key[1:]
        if kind == RECLAIM_PRODUCER:
            forget_producer(state, *decode_idle_producer(row_key))
            continue
        if kind == RECLAIM_KEY:
            # What the record does must not depend on whether this node has the hint.
            if state.tables.local_hints.get(subject) is not None:
                state.tables.local_hints.delete(subject)
            found = state.key_by_id(subject)
            if found is not None:
                state.vanish_if_empty(*found)
            continue
        row = state.tables.reclaim.get(row_key)
        if kind == RECLAIM_QUEUE and row is not None:
            queue = Queue.decode(state.tables, subject, row)
            if _reclaim_step(state, queue, BindingBudget(0)):
                state.tables.reclaim.delete(row_key)
            else:
                state.put_reclaim(row_key, queue.encode())
