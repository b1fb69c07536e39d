"""Gives up messages whose time to live is over, from the beginning of a key's log, though nothing consumes it.

A key with such messages has a mark in table `history`, and a row in table `due` at the time when its first message
expires, or a little later: what a DUE record leaves of a key is due behind all that the record names. If the first
message does not expire, those behind it wait for it: logs are trimmed from their low end only.
Not here: what consumers get (dispatch/filling); they are never given what is over, wherever it lies.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal_slice_node.core.apply.lookups import first_header
from shoal_slice_node.core.rows.due_row import MESSAGE_EXPIRES_ROW, expiry_key
from shoal_slice_node.core.rows.history_row import decode_mark, encode_mark, mark_key
from shoal_slice_node.core.rows.key_row import KeyRow, encode_key
from shoal_slice_node.core.rows.log_row import decode_log

if TYPE_CHECKING:
    from shoal_slice_node.core.apply.state import State


def has_expired(expires_ms: int, at_ms: int) -> bool:
    """Returns whether the time to live of what expires at `expires_ms` is over; 0: it never is."""
    return 0 < expires_ms <= at_ms


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


def low_rose(state: State, key: KeyRow, not_before_ms: int = 0) -> None:
    """Notes that another message is the key's first one now, or none. Must be called wherever a low rises.
    `not_before_ms`: the key's row in `due` is no earlier, even if its first message is over already."""
    row = state.tables.history.get(mark_key(key.id))
    if row is None:
        return
    forget_expiry(state, key.id)
    if key.low < key.head:
        expires_ms = first_header(state.tables, key).expires_ms
        _mark(state, key.id, max(expires_ms, not_before_ms) if expires_ms else 0)


def forget_expiry(state: State, key_id: bytes) -> None:
    """Forgets that the key has messages that expire, if it has a mark."""
    row = state.tables.history.get(mark_key(key_id))
    if row is not None:
        due_ms = decode_mark(row)
        state.tables.history.delete(mark_key(key_id))
        if due_ms:
            state.tables.due.delete(expiry_key(due_ms, key_id))


def expire_first(state: State, key_id: bytes, rows_max: int, not_before_ms: int) -> None:
    """Gives up the first messages of a key that are over, of so many rows at most; the rest is due again at
    `not_before_ms`."""
    found = state.key_by_id(key_id)
    if found is not None and give_up_expired(state, *found, rows_max, not_before_ms) == found[1]:
        low_rose(state, found[1], not_before_ms)


def give_up_expired(state: State, full_name: bytes, key: KeyRow, rows_max: int, not_before_ms: int = 0) -> KeyRow:
    """Gives up the first messages of a key that are over, of so many rows at most. Returns the key's row as it is
    then: the same one, if there are none."""
    tables, low = state.tables, key.low
    if low == key.head or tables.history.get(mark_key(key.id)) is None:
        return key
    for first, row in islice(tables.log.heads(key.id, low, low), rows_max):
        header = decode_log(row)
        if not has_expired(header.expires_ms, state.time_ms):
            break
        low = first + header.messages
    if low == key.low:
        return key
    state.forget_kept(key, low)
    tables.log.trim(key.id, key.low, low)
    after = key._replace(low=low)
    tables.key.put(full_name, encode_key(after))
    state.effects.advanced.append(key.id)
    low_rose(state, after, not_before_ms)
    return after
