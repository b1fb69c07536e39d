"""Applies RETRY records: what becomes of messages that came back to a queue with a bound for deliveries.

The leader decides: it knows what was out, and how often. The record keeps the count, or marks the messages as done and
publishes a copy of each to the queue's dead-letter key: one record, so there is exactly one copy. Where another slice
owns that key, the leader sends the copy first (Returns.letters), and its record says that it is there.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from shoal_slice_node.core.apply.acks import advance, load_binding, save_binding
from shoal_slice_node.core.apply.dead_letters import Death, copy_of, takes_copies
from shoal_slice_node.core.apply.effects import Retried
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.records import Acked, Fate, Retry, decode_retries
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.undone import undone
from shoal_slice_node.core.limits import APPLIED_PER_STEP, COUNTED_RANGES_MAX
from shoal_slice_node.core.rows.detail_row import Detail
from shoal_slice_node.core.rows.key_row import NAME, KeyRow
from shoal_slice_node.core.turns import Work

_BINDING = attrgetter("queue_id", "key_id")


def apply_retries(state: State, payload: bytes) -> Work[None]:
    """Applies a RETRY record. Messages that are done or gone, or that a bind since the leader decided has promised
    again, are left as they are: what is still to be decided the leader decides anew. What it says of one binding in a
    row is done at once: the binding is read and written once."""
    decided_lsn, retries = decode_retries(payload)
    for _, some in groupby(retries, key=_BINDING):
        counting = [retry for retry in some if _counts(state, retry, decided_lsn)]
        if counting:
            yield from _Retrying(state, counting[0].queue_id, counting[0].key_id).apply(counting)
        yield


def _counts(state: State, retry: Retry, decided_lsn: int) -> bool:
    acked = Acked(*retry[:4])
    return retry.first < retry.to and state.bind_backs.counting([acked], decided_lsn) == [acked]


class _Retrying:
    """Applies retries of one binding."""

    def __init__(self, state: State, queue_id: bytes, key_id: bytes) -> None:
        self._state = state
        self._queue_id = queue_id
        self._key_id = key_id

    def apply(self, retries: list[Retry]) -> Work[None]:
        state = self._state
        queue, found = state.load_queue_by_id(self._queue_id), state.key_by_id(self._key_id)
        if queue is None or found is None or not queue.options.max_deliveries:
            return
        key, name = found[1], found[0][NAME]
        detail, has_row = load_binding(state, queue, self._key_id)
        if detail is None:
            return
        dead_letter = queue.options.dead_letter
        assert isinstance(dead_letter, bytes)
        takes, owned = takes_copies(dead_letter, name), state.owns(dead_letter)
        rows = LogRows(state.tables.log, key)
        changed = copied = done = False
        for number, retry in enumerate(retries, 1):
            if retry.first < detail.cursor or retry.to > (detail.end or key.head):
                continue
            copies = retry.fate == Fate.DEAD and takes
            if copies and owned and retry.first < key.low:
                # The key gave these up since the leader decided: there is no copy to make, so it tells of a gap.
                retry = retry._replace(first=min(key.low, retry.to))
                if retry.first == retry.to:
                    continue
            is_done = retry.fate == Fate.SENT or (retry.fate == Fate.DEAD and (not copies or owned))
            if is_done:
                left = detail.done.gaps(max(retry.first, key.low), retry.to)
                state.effects.counters.count_dead(retry.reason, sum(to - low for low, to in left))
                if copies:
                    yield from self._publish_copies(queue.name, dead_letter, rows, name, detail, retry)
                    copied = True
                advance(detail, [Acked(*retry[:4])])
                changed = done = True
            else:
                changed |= self._count(key, detail, retry)
            if self._queue_id in state.interest.queues:
                state.effects.events.append(Retried(self._queue_id, self._key_id, retry.first, retry.to, is_done))
            if number % APPLIED_PER_STEP == 0:
                yield
        if copied:
            queue = state.load_queue_by_id(self._queue_id)  # A copy may have bound it to its direct key.
            assert queue is not None
        if changed:
            save_binding(state, queue, self._key_id, detail, has_row)
            queue.save()
        if done:
            state.effects.advanced.append(self._key_id)

    @staticmethod
    def _count(key: KeyRow, detail: Detail, retry: Retry) -> bool:
        """Sets the counts of what is not done. Returns whether there was any."""
        gaps = detail.done.gaps(max(retry.first, key.low), retry.to)
        for low, to in gaps:
            detail.counts.put(low, to, retry.times)
        detail.counts.keep_lowest(COUNTED_RANGES_MAX)
        return bool(gaps)

    def _publish_copies(
        self, queue: bytes, dead_letter: bytes, rows: LogRows, name: bytes, detail: Detail, retry: Retry
    ) -> Work[None]:
        """Publishes a copy of each message that is neither done nor expired."""
        state = self._state
        for part in list(undone(rows, max(retry.first, rows.low), retry.to, detail.done)):
            if has_expired(part.stored.header.expires_ms, state.time_ms):
                continue
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
        rows.pause()
