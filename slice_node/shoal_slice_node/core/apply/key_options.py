"""Configures keys: what their logs keep besides what queues still have to get, and how much they keep at most.

A key with options never vanishes. Its history is trimmed as all is: the leader finds how far, a TRIM record does it,
and apply leaves what the options need then.
"""

from __future__ import annotations

from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import PLAIN, KeyOptions
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import HISTORY_BYTES_PER_LOOK, HISTORY_MESSAGES_PER_TRIM
from shoal_slice_node.core.rows.history_row import ROW
from shoal_slice_node.core.rows.key_row import NAME, KeyRow, decode_key, encode_key
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.tables.tables import Tables


def configure(state: State, key: bytes, options: KeyOptions) -> None:
    """Gives a key these options, in the place of those that it has. Raises NotOwner."""
    tables, full_name = state.tables, state.owned_name(key)
    row = tables.key.get(full_name)
    if row is None:
        if options == PLAIN:
            return
        row = state.create_key(full_name)
    before = decode_key(row)
    if before.options == options:
        return
    after = before._replace(options=options)
    tables.key.put(full_name, encode_key(after))
    if options.history_age_s:
        tables.history.put(after.id, ROW)
    elif before.options.history_age_s:
        tables.history.delete(after.id)
    if not state.vanish_if_empty(full_name, after):
        state.effects.advanced.append(after.id)


def check_capacity(state: State, full_name: bytes, key: KeyRow, measure: tuple[int, int]) -> None:
    """Checks that a key has room for a chunk of (messages, body bytes). Raises ResourceExhausted."""
    options = key.options
    messages, body_bytes = measure
    if options.capacity_messages:
        value = key.head - key.low + messages
        if value > options.capacity_messages:
            raise _full(state, full_name, "messages", value, options.capacity_messages)
    if options.capacity_bytes:
        value = _kept_bytes(state.tables, key) + body_bytes
        if value > options.capacity_bytes:
            raise _full(state, full_name, "bytes", value, options.capacity_bytes)


def _kept_bytes(tables: Tables, key: KeyRow) -> int:
    if key.low == key.head:
        return 0
    _, first = next(tables.log.read(key.id, key.low, key.low))
    return key.body_bytes - decode_log(first).body_bytes_before


def _full(state: State, full_name: bytes, what: str, value: int, limit: int) -> ResourceExhausted:
    shown = state.refusals.shown(full_name[NAME])
    return ResourceExhausted(
        f"key {shown} would keep {value} {what}; its capacity is {limit}", subject=shown, limit=limit, value=value
    )


def history_floor(tables: Tables, key: KeyRow, now_ms: int) -> int:
    """Returns an offset below which the key's history needs nothing at `now_ms`; the head if it has no history. Looks
    at some rows only: there may be a higher one. What it returns never goes back while the options stay."""
    options = key.options
    floor = key.head
    if options.history_messages:
        floor = max(key.low, key.head - options.history_messages)
    if options.history_age_s:
        floor = min(floor, _floor_of_age(tables, key, now_ms - 1000 * options.history_age_s))
    return floor


def has_old_history(tables: Tables, key: KeyRow, now_ms: int) -> bool:
    """Returns whether the first messages are too old for the key's history at `now_ms`, or too many. Reads one row."""
    options = key.options
    if key.low == key.head or (options.history_messages and key.head - key.low <= options.history_messages):
        return False
    _, row = next(tables.log.read(key.id, key.low, key.low))
    return not options.history_age_s or decode_log(row).time_ms < now_ms - 1000 * options.history_age_s


def _floor_of_age(tables: Tables, key: KeyRow, since_ms: int) -> int:
    """Returns where the first message published at `since_ms` or later is, or an offset below. Times of records, so of
    rows, never go back: from the low on, rows are looked at in steps that double, then the last step is halved."""
    low, high = key.low, min(key.head, key.low + HISTORY_MESSAGES_PER_TRIM)
    step, left = 1, HISTORY_BYTES_PER_LOOK
    while low < high and left > 0:
        probe = min(low + step - 1, high - 1) if step else (low + high) // 2
        first, row = next(tables.log.read(key.id, key.low, probe))
        header = decode_log(row)
        left -= len(row)
        if header.time_ms < since_ms:
            low = first + header.messages
            step *= 2
        else:
            high, step = first, 0
    return low
