"""Applies RETRY records: what becomes of messages that came back to a queue with a bound for deliveries.

The leader decides: it knows what was out, and how often. The record keeps the count, or marks the messages as done and
publishes a copy of each to the queue's dead-letter key: one record, so there is exactly one copy. Where another slice
owns that key, the leader sends the copy first (Returns.letters), and its record says that it is there.
"""

from __future__ import annotations

from shoal_slice_node.core.apply.acks import load_binding, settle
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
from shoal_slice_node.core.rows.detail_row import Detail
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
        detail, has_row = load_binding(state, queue, retry.key_id)
        if detail is None or retry.first < detail.cursor or retry.to > (detail.end or key.head):
            return
        dead_letter = queue.options.dead_letter
        assert isinstance(dead_letter, bytes)
        copies = retry.fate == Fate.DEAD and takes_copies(dead_letter, name)
        is_done = retry.fate == Fate.SENT or (retry.fate == Fate.DEAD and (not copies or state.owns(dead_letter)))
        if not is_done:
            self._count(queue, key, detail, has_row)
        else:
            left = detail.done.gaps(max(retry.first, key.low), retry.to)
            state.effects.counters.count_dead(retry.reason, sum(to - low for low, to in left))
            if copies:
                yield from self._publish_copies(queue.name, dead_letter, key, name, detail)
                queue = state.load_queue_by_id(retry.queue_id)  # A copy may have bound it to its direct key.
                assert queue is not None
            settle(state, queue, [Acked(*retry[:4])])
        if retry.queue_id in state.watch.queues:
            state.effects.events.append(Retried(retry.queue_id, retry.key_id, retry.first, retry.to, is_done))

    def _count(self, queue: Queue, key: KeyRow, detail: Detail, has_row: bool) -> None:
        state, retry = self._state, self._retry
        for low, to in detail.done.gaps(max(retry.first, key.low), retry.to):
            detail.counts.put(low, to, retry.times)
        detail.counts.keep_lowest(COUNTED_RANGES_MAX)
        if detail.counts:
            queue.details += not has_row
            save_detail(state, queue, retry.key_id, detail)
            queue.save()

    def _publish_copies(self, queue: bytes, dead_letter: bytes, key: KeyRow, name: bytes, detail: Detail) -> Work[None]:
        """Publishes a copy of each message that is not done."""
        state, retry = self._state, self._retry
        rows = LogRows(state.tables.log, key)
        for part in list(undone(rows, max(retry.first, key.low), retry.to, detail.done)):
            chunk = part.stored.opened()
            for offset in range(part.low, part.to):
                death = Death(dead_letter, queue, name, offset, retry.times, retry.reason)
                copy = copy_of(chunk, offset - part.stored.first, death)
                if copy is not None:
                    body_bytes = len(chunk.bodies[offset - part.stored.first])
                    first, _ = publish(state, dead_letter, copy, (1, body_bytes), False, state.time_ms, bounded=False)
                    state.effects.counters.publishes += bool(first)  # `publish` counts what is not kept.
                    state.effects.counters.chunks += 1
                yield
