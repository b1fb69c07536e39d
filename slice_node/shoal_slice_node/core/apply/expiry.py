"""Gives up messages whose time to live is over, from the beginning of a key's log, though nothing consumes it.

A key with such messages has a mark in table `history`, and a row in table `due` at the time when its first message
expires. If the first message does not expire, those behind it wait for it: logs are trimmed from their low end only.
Not here: what consumers get (dispatch/filling); they are never given what is over, wherever it lies.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import HISTORY_BYTES_PER_LOOK, HISTORY_ROWS_PER_LOOK
from shoal_slice_node.core.rows.due_row import MESSAGE_EXPIRES_ROW, expiry_key
from shoal_slice_node.core.rows.history_row import decode_mark, encode_mark, mark_key
from shoal_slice_node.core.rows.key_row import KeyRow, encode_key
from shoal_slice_node.core.rows.log_row import decode_log

if TYPE_CHECKING:
    from shoal_slice_node.core.apply.state import State


def has_expired(expires_ms: int, wall_ms: int) -> bool:
    """Returns whether the time to live of what expires at `expires_ms` is over; 0: it never is."""
    return 0 < expires_ms <= wall_ms


def expiring_published(state: State, key_id: bytes, first_of_log: bool, expires_ms: int) -> None:
    """Notes that a chunk was appended which expires. `first_of_log`: nothing is before it."""
    if state.tables.history.get(mark_key(key_id)) is None:
        _mark(state, key_id, expires_ms if first_of_log else 0)


def _mark(state: State, key_id: bytes, due_ms: int) -> None:
    state.tables.history.put(mark_key(key_id), encode_mark(due_ms))
    if due_ms:
        row_key = expiry_key(due_ms, key_id)
        state.tables.due.put(row_key, MESSAGE_EXPIRES_ROW)
        state.effects.due.append(row_key)


def low_rose(state: State, key: KeyRow) -> None:
    """Notes that another message is the key's first one now, or none. Must be called wherever a low rises."""
    row = state.tables.history.get(mark_key(key.id))
    if row is None:
        return
    forget_expiry(state, key.id)
    if key.low < key.head:
        _mark(state, key.id, decode_log(next(state.tables.log.read(key.id, key.low, key.low))[1]).expires_ms)


def forget_expiry(state: State, key_id: bytes) -> None:
    """Forgets that the key has messages that expire, if it has a mark."""
    row = state.tables.history.get(mark_key(key_id))
    if row is not None:
        due_ms = decode_mark(row)
        state.tables.history.delete(mark_key(key_id))
        if due_ms:
            state.tables.due.delete(expiry_key(due_ms, key_id))


def expire_first(state: State, key_id: bytes) -> None:
    """Gives up the first messages of a key that are over, as many as one look finds; the rest is due again."""
    found = state.key_by_id(key_id)
    if found is None:
        return
    full_name, key = found
    low, left = key.low, HISTORY_BYTES_PER_LOOK
    for first, row in islice(state.tables.log.read(key.id, key.low, key.low), HISTORY_ROWS_PER_LOOK):
        header = decode_log(row)
        if left <= 0 or not has_expired(header.expires_ms, state.time_ms):
            break
        low = first + header.messages
        left -= len(row)
    if low > key.low:
        state.forget_kept(key, low)
        state.tables.log.trim(key.id, key.low, low)
        key = key._replace(low=low)
        state.tables.key.put(full_name, encode_key(key))
        state.effects.advanced.append(key.id)
    low_rose(state, key)
