"""Keeps what is to happen at an absolute time, and does it: the leader decides by its clock, a DUE record does it.

Times are those of records, which never go back, also over a restart (State.time_ms). Each row is looked at again when
the record is applied, and nothing is done before its time. What is refused is due again after a pause, by the leader's
clock, which the record tells: record times may be far ahead of it, if it went wrong once.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal_contract.errors import NotOwner, OutOfRange, ResourceExhausted
from shoal_slice_node.core.apply.expiry import expire_first
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.records import Due, decode_due, due_wall_ms
from shoal_slice_node.core.apply.routing import routed, unroutable
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    APPLIED_PER_STEP,
    DELAY_MS_MAX,
    DELAYED_BYTES_MAX,
    DELAYED_CHUNKS_MAX,
    DELAYED_SHARE_OF_KEY,
    DUE_AGAIN_MS,
    DUE_AGAIN_MS_MAX,
    DUE_BYTES_PER_STEP,
    EXPIRED_ROWS_PER_RECORD,
    EXPIRED_ROWS_PER_STEP,
)
from shoal_slice_node.core.rows.due_row import (
    DELAYED,
    FIRST,
    DelayedCounts,
    DelayedOfKey,
    DelayedRow,
    decode_counts,
    decode_delayed,
    decode_due_key,
    decode_of_key,
    delayed_id,
    delayed_key,
    delayed_of_key,
    due_time,
    encode_counts,
    encode_delayed,
    encode_of_key,
    expiring_key,
)
from shoal_slice_node.core.rows.key_row import NAME
from shoal_slice_node.core.rows.log_row import chunk_of, encode_log
from shoal_slice_node.core.turns import Work


def delay(
    state: State,
    key: bytes,
    chunk: bytes,
    measure: tuple[int, int],
    mandatory: bool,
    not_before_ms: int,
    ttl_ms: int = 0,
) -> int:
    """Keeps a chunk, to be published when its time has come. `not_before_ms`: Unix time; a past one is due at once.
    `ttl_ms` counts from when it is published. Returns 0: it has no offset yet, and was routed to no queue.

    `mandatory` is checked now: when the time has come, no caller waits for an answer. Raises NotOwner, Unroutable;
    OutOfRange for a time too far ahead, ResourceExhausted if as much is delayed as may be.
    """
    full_name = state.owned_name(key)
    if mandatory and not routed(state, full_name):
        raise unroutable(state, key)
    latest_ms = state.time_ms + DELAY_MS_MAX
    if not_before_ms > latest_ms:
        raise OutOfRange(
            f"not_before is {not_before_ms}; the limit is {DELAY_MS_MAX // 86_400_000} days from now, {latest_ms}",
            subject="not_before",
            limit=latest_ms,
            value=not_before_ms,
        )
    messages, body_bytes = measure
    number, chunks, kept_bytes = decode_counts(state.tables.meta.get(DELAYED))
    _check_room("this slice", "delayed publishes", chunks + 1, DELAYED_CHUNKS_MAX)
    _check_room("this slice", "delayed bytes", kept_bytes + len(chunk), DELAYED_BYTES_MAX)
    own = decode_of_key(state.tables.meta.get(delayed_of_key(full_name)))
    shown = f"key {state.refusals.shown(key)}"
    _check_room(shown, "delayed publishes", own.chunks + 1, DELAYED_CHUNKS_MAX // DELAYED_SHARE_OF_KEY)
    _check_room(shown, "delayed bytes", own.chunk_bytes + len(chunk), DELAYED_BYTES_MAX // DELAYED_SHARE_OF_KEY)
    row_key = delayed_key(not_before_ms, number)
    state.tables.due.put(row_key, encode_delayed(DelayedRow(messages, body_bytes, len(chunk), full_name, ttl_ms)))
    state.tables.log.append(delayed_id(number), FIRST, encode_log(messages, body_bytes, state.time_ms, 0, chunk))
    state.tables.meta.put(DELAYED, encode_counts(DelayedCounts(number + 1, chunks, kept_bytes)))
    _count(state, full_name, 1, len(chunk))
    state.effects.due.append(row_key)
    state.effects.published.append(None)
    return 0


def _check_room(whose: str, what: str, value: int, limit: int) -> None:
    if value > limit:
        raise ResourceExhausted(
            f"{whose} would have {value} {what}; the limit is {limit}", subject=what, limit=limit, value=value
        )


def _count(state: State, full_name: bytes, chunks: int, chunk_bytes: int) -> None:
    """Counts delayed publishes that came, or (below 0) went."""
    meta, row_key = state.tables.meta, delayed_of_key(full_name)
    counts, own = decode_counts(meta.get(DELAYED)), decode_of_key(meta.get(row_key))
    all_bytes = counts.chunk_bytes + chunk_bytes
    meta.put(DELAYED, encode_counts(counts._replace(chunks=counts.chunks + chunks, chunk_bytes=all_bytes)))
    own = DelayedOfKey(own.chunks + chunks, own.chunk_bytes + chunk_bytes)
    if own.chunks:
        meta.put(row_key, encode_of_key(own))
    else:
        meta.delete(row_key)


def apply_due(state: State, payload: bytes) -> Work[None]:
    """Applies a DUE record: does what its rows say, except where that is not due at the record's time.

    Replay may freeze between its steps. How far it was is saved with the tables (State.save_part): applied again to
    them, it goes on behind that. So nothing is done twice, whatever its rows do to each other."""
    wall_ms = min(due_wall_ms(payload) or state.time_ms, state.time_ms)
    rows = decode_due(payload)
    looked_at = expired_rows_per_key(rows)
    step_bytes = step_rows = 0
    for number in range(state.begin_rows(), len(rows)):
        row_key = rows[number].row_key
        row = state.tables.due.get(row_key)
        if row is not None:
            if due_time(row_key) > state.time_ms:
                state.effects.due.append(row_key)  # To be found again.
            elif (key_id := expiring_key(row_key)) is not None:
                state.tables.due.delete(row_key)
                expire_first(state, key_id, looked_at, wall_ms + 1)
                step_rows += looked_at
            else:
                delayed = decode_delayed(row)
                _publish_delayed(state, row_key, delayed, wall_ms)
                step_bytes += delayed.chunk_bytes
        if number % APPLIED_PER_STEP == 0 or step_bytes >= DUE_BYTES_PER_STEP or step_rows >= EXPIRED_ROWS_PER_STEP:
            step_bytes = step_rows = 0
            state.rows_done = number + 1
            yield
    state.end_rows()


def expired_rows_per_key(rows: Sequence[Due]) -> int:
    """Returns how many log rows a DUE record looks at for each key whose first message expires. What the record names
    decides it, not what was done before: so it does the same if it is applied again to a part of itself."""
    expiring = sum(expiring_key(due.row_key) is not None for due in rows)
    return max(1, min(EXPIRED_ROWS_PER_STEP, EXPIRED_ROWS_PER_RECORD // max(1, expiring)))


def _publish_delayed(state: State, row_key: bytes, delayed: DelayedRow, wall_ms: int) -> None:
    """Publishes a delayed chunk. If its partition is another slice's now, or its key is at its capacity, it stays, and
    is looked at again later: each pause is twice as long as the one before. `wall_ms`: the leader's time."""
    tables, due = state.tables, decode_due_key(row_key)
    number, refused = due.number, due.refused or 0
    key, measure = delayed.full_name[NAME], (delayed.messages, delayed.body_bytes)
    tables.due.delete(row_key)
    chunk_id = delayed_id(number)
    chunk = chunk_of(next(tables.log.read(chunk_id, FIRST, FIRST))[1])
    added_before = state.effects.added_messages
    try:
        publish(state, key, chunk, measure, False, state.time_ms, ttl_ms=delayed.ttl_ms)
    except (NotOwner, ResourceExhausted):
        pause_ms = min(DUE_AGAIN_MS << refused, DUE_AGAIN_MS_MAX)
        later = delayed_key(wall_ms + pause_ms, number, refused + 1)
        tables.due.put(later, encode_delayed(delayed))
        state.effects.due.append(later)
        return
    state.effects.counters.publishes += state.effects.added_messages - added_before
    state.effects.counters.chunks += 1
    tables.log.trim(chunk_id, FIRST, FIRST + delayed.messages)
    _count(state, delayed.full_name, -1, -delayed.chunk_bytes)
