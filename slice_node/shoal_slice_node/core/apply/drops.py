"""Drops queues, and reclaims in bounded steps what they leave.

A dropped queue's name is free at once. A queue of one bucket, the usual case, gives up its bindings in the same step,
as long as the record's budget lasts. A larger queue, or one that is dropped without a budget (a storm: many queues in
one step), waits in `reclaim` and gives up one bucket a turn; until then receipts still count it. Its row moves there as
it is: what a storm costs does not depend on the number of bindings.
"""

from __future__ import annotations

from itertools import islice

from shoal_contract.errors import NoSuchQueue
from shoal_contract.names import DIRECT_PREFIX
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import discard_ended, end_binding, no_such_queue
from shoal_slice_node.core.apply.effects import Dropped
from shoal_slice_node.core.apply.farewells import forget_farewell
from shoal_slice_node.core.apply.lookups import bound_key, key_by_id
from shoal_slice_node.core.apply.producers import forget_producer
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import decode_reclaim
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import BUCKET_ENTRIES_MEAN, RECLAIM_KEY_COST, RECLAIMED_PER_STEP
from shoal_slice_node.core.rows.detail_row import KEY_ID, cursor_and_end, detail_key
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.key_row import ID, low_of
from shoal_slice_node.core.rows.queue_row import incarnation_of, options_of, streams_of
from shoal_slice_node.core.rows.small_rows import (
    RECLAIM_ENDED,
    RECLAIM_KEY,
    RECLAIM_PRODUCER,
    RECLAIM_QUEUE,
    decode_idle_producer,
)
from shoal_slice_node.core.turns import Work


def drop(state: State, name: bytes, incarnation: int, budget: BindingBudget) -> int:
    """Drops a queue. `incarnation`: only this life of the queue; 0: the one there is. Returns the dropped incarnation.

    Raises NoSuchQueue; with its `value` where another life is here.
    """
    tables = state.tables
    queue_id = tables.queue_by_name.get(name)
    row = None if queue_id is None else tables.queue.get(queue_id)
    if queue_id is None or row is None:
        raise no_such_queue(state, name)
    found = incarnation_of(row)
    if incarnation and found not in (0, incarnation):
        shown = state.refusals.shown(name)
        raise NoSuchQueue(
            f"queue {shown} of incarnation {incarnation} is not here, and nothing is dropped: {found}, a"
            " later or earlier life, is",
            subject=shown,
            value=incarnation,
        )
    drop_queue(state, queue_id, name, row, budget)
    return found


def drop_queue(state: State, queue_id: bytes, name: bytes, row: bytes, budget: BindingBudget) -> None:
    """Drops a queue that exists. Bindings beyond the budget are ended in the background. `row`: of table `queue`."""
    tables = state.tables
    tables.queue_by_name.delete(name)
    tables.queue.delete(queue_id)
    if options_of(row).expires_after_s:
        tables.transient.delete(queue_id)
    forget_farewell(state, queue_id)
    if queue_id in state.interest.queues:
        state.effects.dropped.append(queue_id)
    members = state.interest.members
    if members is not None and (queue_id in members.queues or state.effects.members):  # It may have joined just now.
        state.effects.members.append(Dropped(queue_id))
    if streams_of(row):
        _give_up(state, queue_id, name, row, budget)


def _give_up(state: State, queue_id: bytes, name: bytes, row: bytes, budget: BindingBudget) -> None:
    """Ends a dropped queue's bindings, or puts it on `reclaim`. Its binding to the direct key always ends at once:
    messages sent from now on are for the next queue of this name."""
    key_row = state.tables.key.get(state.unchecked_name(DIRECT_PREFIX + name))
    if key_row is None and budget.remaining <= 0:
        state.put_reclaim(RECLAIM_QUEUE + queue_id, row)
        return
    queue = Queue.decode(state.tables, queue_id, row)
    if key_row is not None:
        _end_direct(state, queue, key_row)
    if budget.remaining <= 0 or not _reclaim_step(state, queue, budget):
        state.put_reclaim(RECLAIM_QUEUE + queue_id, queue.encode())


def _end_direct(state: State, queue: Queue, key_row: bytes) -> None:
    key_id = key_row[ID]
    if key_id in queue.bucket(key_id).starts:
        end_binding(state, queue, key_id, key_row, discard=True)
        queue.bindings -= 1
        queue.save_bucket(key_id)


def _reclaim_step(state: State, queue: Queue, budget: BindingBudget) -> bool:
    """Ends the bindings of the last bucket, and discards some that had ended before. Returns True if none is left."""
    tables = state.tables
    bucket = queue.last_bucket()
    budget.remaining -= len(bucket.starts) + 1
    for key_id in list(bucket.starts):
        _forget_detail(state, queue, key_id)
        end_binding(state, queue, key_id, bound_key(tables, key_id)[1], discard=True)
        queue.bindings -= 1
    rows = islice(tables.detail.scan(queue.id), BUCKET_ENTRIES_MEAN if queue.details else 0)
    for key_id in [row_key[KEY_ID] for row_key, _ in rows]:
        budget.remaining -= 1
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


def apply_reclaim(state: State, payload: bytes) -> Work[None]:
    """Applies a RECLAIM record, one turn: takes each named row one step further. Yields between them."""
    cost = 0
    for row_key in decode_reclaim(payload):
        cost += _reclaim_row(state, row_key)
        if cost >= RECLAIMED_PER_STEP:
            cost = 0
            yield


def _reclaim_row(state: State, row_key: bytes) -> int:
    """Takes a row one step further. Returns about what it cost, in bindings."""
    kind, subject = row_key[:1], row_key[1:]
    if kind == RECLAIM_PRODUCER:
        forget_producer(state, *decode_idle_producer(row_key))
        return RECLAIMED_PER_STEP
    if kind == RECLAIM_KEY:
        # What the record does must not depend on whether this node has the hint.
        if state.tables.local_hints.get(subject) is not None:
            state.tables.local_hints.delete(subject)
        found = state.key_by_id(subject)
        if found is not None:
            state.vanish_if_empty(*found)
        return RECLAIM_KEY_COST
    if kind == RECLAIM_ENDED:
        _reclaim_ended(state, subject[:ID_BYTES], subject[ID_BYTES:])
        return RECLAIM_KEY_COST
    row = state.tables.reclaim.get(row_key)
    if kind == RECLAIM_QUEUE and row is not None:
        budget = BindingBudget(0)
        queue = Queue.decode(state.tables, subject, row)
        if _reclaim_step(state, queue, budget):
            state.tables.reclaim.delete(row_key)
        else:
            state.put_reclaim(row_key, queue.encode())
        return -budget.remaining
    return RECLAIM_KEY_COST


def _reclaim_ended(state: State, queue_id: bytes, key_id: bytes) -> None:
    """Forgets a binding that ended with a backlog, if its key keeps nothing of this backlog any more."""
    row, found = state.tables.detail.get(detail_key(queue_id, key_id)), key_by_id(state.tables, key_id)
    queue = state.load_queue_by_id(queue_id)
    if row is None or found is None or queue is None:
        return
    end = cursor_and_end(row)[1]
    if end and end <= low_of(found[1]):
        discard_ended(state, queue, key_id)
        queue.save()
