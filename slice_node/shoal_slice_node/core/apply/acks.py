"""Applies acks: a binding's cursor moves over done messages; messages done above the cursor become done ranges."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from shoal_slice_node.core.apply.binds import save_detail
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import Acked, decode_acks
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail, detail_key
from shoal_slice_node.core.rows.queue_cursor import move_cursor


def apply_acks(state: State, payload: bytes) -> None:
    """Applies the acks of an ACKS record.

    An ack for a binding that is gone, or for messages that are done already, changes nothing. The queue may have been
    bound again since the ack was taken: the ack does not count for messages that the new binding is to see again. If it
    is not known any more which those are, no ack is applied, and the leader takes all of them again.
    """
    table = state.tables.queue
    taken_at_lsn, all_acks = decode_acks(payload)
    counting = state.bind_backs.counting(all_acks, taken_at_lsn)
    state.bind_backs.acks_applied(taken_at_lsn)
    if counting is None:
        state.effects.acks_skipped = True
        return
    for queue_id, acks in groupby(counting, attrgetter("queue_id")):
        row = table.get(queue_id)
        if row is None:
            continue
        waiting = list(acks)
        while waiting:
            moved = move_cursor(row, waiting[0].key_id, waiting[0].first, waiting[0].to)
            if moved is None:
                break
            state.effects.advanced.append(waiting.pop(0).key_id)
            row = moved
        if waiting:
            settle(state, Queue.decode(state.tables, queue_id, row), waiting)
        else:
            table.put(queue_id, row)


def settle(state: State, queue: Queue, acks: list[Acked]) -> None:
    """Applies acks of one queue key by key, and saves the queue: a detail row with many ranges is read and written
    once, however many acks come."""
    for key_id, ranges in groupby(acks, attrgetter("key_id")):
        _apply(state, queue, key_id, list(ranges))
    queue.save()


def _apply(state: State, queue: Queue, key_id: bytes, acks: list[Acked]) -> None:
    bucket = queue.bucket(key_id)
    row = state.tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
    start = bucket.starts.get(key_id)
    if row is not None:
        detail = decode_detail(row)
        _advance(detail, acks)
        if detail.ended:
            _save_ended(state, queue, key_id, detail)
        else:
            bucket.put(key_id, detail.start, detail.cursor)
            save_detail(state, queue, key_id, detail)
    elif start is not None:
        detail = Detail(start, bucket.cursor(key_id))
        _advance(detail, acks)
        bucket.put(key_id, start, detail.cursor)
        if detail.done:
            queue.details += 1
            save_detail(state, queue, key_id, detail)
    state.effects.advanced.append(key_id)


def _advance(detail: Detail, acks: list[Acked]) -> None:
    for ack in acks:
        if ack.first <= detail.cursor:
            detail.cursor = max(detail.cursor, ack.to)
        else:
            detail.done.add(ack.first, ack.to)
        if detail.counts:
            detail.counts.cut(ack.first, ack.to)
    detail.cursor = detail.done.end_of(detail.cursor)
    detail.done.cut_below(detail.cursor)
    if detail.counts:
        detail.counts.cut_below(detail.cursor)


def _save_ended(state: State, queue: Queue, key_id: bytes, detail: Detail) -> None:
    if detail.cursor < detail.end:
        save_detail(state, queue, key_id, detail)
        return
    state.tables.detail.delete(detail_key(queue.id, key_id))
    state.remove_ended(key_id, queue.id)
    queue.details -= 1
