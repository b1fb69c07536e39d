"""Applies RETRY records: what becomes of messages that came back to a queue with a bound for deliveries.

The leader decides: it knows what was out, and how often. The record keeps the count, or marks the messages as done and
publishes a copy of each to the queue's dead-letter key: one record, so there is exactly one copy. Where another slice
owns that key, the leader sends the copy first (Returns.letters), and its record says that it is there.
"""

from __future__ import annotations

from shoal_contract.partition_hash import partition_of
from shoal_slice_node.core.apply.acks import settle
from shoal_slice_node.core.apply.binds import save_detail
from shoal_slice_node.core.apply.dead_letters import Death, copy_of, takes_copies
from shoal_slice_node.core.apply.effects import Retried
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import Acked, Fate, Retry, decode_retries
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.undone import undone
from shoal_slice_node.core.limits import APPLIED_PER_STEP, COUNTED_RANGES_MAX
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail, detail_key
from shoal_slice_node.core.rows.key_row import NAME, KeyRow
from shoal_slice_node.core.turns import Work


def apply_retries(state: State, payload: bytes) -> Work[None]:
    """Applies a RETRY record. Messages that are done or gone, or that a bind since the leader decided has promised
    again, are left as they are: what is still to be decided the leader decides anew."""
    decided_lsn, retries = decode_retries(payload)
    for number, retry in enumerate(retries):
        acked = Acked(*retry[:4])
        if retry.first < retry.to and state.bind_backs.counting([acked], decided_lsn) == [acked]:
            yield from _Retrying(state, retry).apply()
        if number % APPLIED_PER_STEP == 0:
            yield


def owns(state: State, key: bytes) -> bool:
    """Returns whether this slice owns the key."""
    return bool(state.owned[partition_of(key, state.partitions)])


class _Retrying:
    """Applies one retry."""

    def __init__(self, state: State, retry: Retry) -> None:
        self._state = state
        self._retry = retry

    def apply(self) -> Work[None]:
        state, retry = self._state, self._retry
        queue, found = state.load_queue_by_id(retry.queue_id), state.key_by_id(retry.key_id)
        if queue is None or found is None or not queue.options.max_deliveries:
            return
        key, name = found[1], found[0][NAME]
        detail = self._detail(queue)
        if detail is None:
            return
        dead_letter = queue.options.dead_letter
        assert isinstance(dead_letter, bytes)
        copies = retry.fate == Fate.DEAD and takes_copies(dead_letter, name)
        is_done = retry.fate == Fate.SENT or (retry.fate == Fate.DEAD and (not copies or owns(state, dead_letter)))
        if not is_done:
            self._count(queue, key, detail)
        else:
            if copies:
                yield from self._publish_copies(queue.name, dead_letter, key, name, detail)
                queue = state.load_queue_by_id(retry.queue_id)  # A copy may have bound it to its direct key.
                assert queue is not None
            settle(state, queue, [Acked(*retry[:4])])
        if retry.queue_id in state.watch.queues:
            state.effects.events.append(Retried(retry.queue_id, retry.key_id, retry.first, retry.to, is_done))

    def _detail(self, queue: Queue) -> Detail | None:
        """Returns the binding as a detail row would have it; None: there is no binding with these messages."""
        state, retry = self._state, self._retry
        row = state.tables.detail.get(detail_key(queue.id, retry.key_id)) if queue.details else None
        bucket = queue.bucket(retry.key_id)
        if row is not None:
            detail = decode_detail(row)
        elif retry.key_id in bucket.starts:
            detail = Detail(bucket.starts[retry.key_id], bucket.cursor(retry.key_id))
        else:
            return None
        found = state.key_by_id(retry.key_id)
        assert found is not None
        fits = detail.cursor <= retry.first and retry.to <= (detail.end or found[1].head)
        return detail if fits else None

    def _count(self, queue: Queue, key: KeyRow, detail: Detail) -> None:
        state, retry = self._state, self._retry
        had_row = bool(detail.ended or detail.done or detail.counts)
        for low, to in detail.done.gaps(max(retry.first, key.low), retry.to):
            detail.counts.put(low, to, retry.times)
        detail.counts.keep_lowest(COUNTED_RANGES_MAX)
        if detail.counts:
            queue.details += 0 if had_row else 1
            save_detail(state, queue, retry.key_id, detail)
            queue.save()

    def _publish_copies(self, queue: bytes, dead_letter: bytes, key: KeyRow, name: bytes, detail: Detail) -> Work[None]:
        """Publishes a copy of each message that is not done."""
        state, retry = self._state, self._retry
        rows = LogRows(state.tables.log, key)
        for part in list(undone(rows, max(retry.first, key.low), retry.to, detail.done)):
            chunk = part.stored.opened()
            for offset in range(part.low, part.to):
                death = Death(queue, name, offset, retry.times, retry.reason)
                copy = copy_of(chunk, offset - part.stored.first, death)
                if copy is not None:
                    body_bytes = len(chunk.bodies[offset - part.stored.first])
                    first, _ = publish(state, dead_letter, copy, (1, body_bytes), False, state.time_ms, bounded=False)
                    state.effects.counters.publishes += bool(first)  # `publish` counts what is not kept.
                    state.effects.counters.chunks += 1
                yield
