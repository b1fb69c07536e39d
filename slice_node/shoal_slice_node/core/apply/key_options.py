"""Configures keys: what their logs keep besides what queues still have to get, and how much they keep at most.

A key with options never vanishes. Its history is trimmed as all is: the leader finds how far, a TRIM record does it,
and apply leaves what the options need then.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import PLAIN, KeyOptions
from shoal_slice_node.core.apply.expiry import give_up_expired, low_rose
from shoal_slice_node.core.apply.log_rows import first_row
from shoal_slice_node.core.apply.lookups import first_header
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import EXPIRED_ROWS_AT_CAPACITY, HISTORY_MESSAGES_PER_TRIM
from shoal_slice_node.core.rows.history_row import ROW
from shoal_slice_node.core.rows.key_row import NAME, KeyRow, decode_key, encode_key
from shoal_slice_node.core.rows.log_row import LogRow, decode_log
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


def fit_capacity(state: State, full_name: bytes, row: bytes, measure: tuple[int, int], bounded: bool) -> bytes:
    """Returns a configured key's row as it is before a chunk of (messages, body bytes) is appended: its policy may have
    let the oldest messages go. `bounded` False: the chunk is taken in any case.

    Raises ResourceExhausted if the key has no room, and its policy makes none.
    """
    key = decode_key(row)
    if not key.options.drops_oldest:
        return _with_room(state, full_name, row, key, measure) if bounded else row
    if bounded:
        _check_capacity(state, full_name, key._replace(low=key.head), measure)
    low = _low_with_room(state.tables, key, measure)
    if low == key.low:
        return row
    state.forget_kept(key, low)
    state.tables.log.trim(key.id, key.low, low)
    key = key._replace(low=low)
    low_rose(state, key)
    return encode_key(key)


def _with_room(state: State, full_name: bytes, row: bytes, key: KeyRow, measure: tuple[int, int]) -> bytes:
    """Returns the row of a key that refuses what it has no room for. What has expired takes no room: it is given up
    now, as far as a look finds it, if a DUE record has not come to it. Raises ResourceExhausted."""
    try:
        _check_capacity(state, full_name, key, measure)
    except ResourceExhausted:
        state.effects.full.append(key.id)
        after = give_up_expired(state, full_name, key, EXPIRED_ROWS_AT_CAPACITY)
        if after == key:
            raise
        _check_capacity(state, full_name, after, measure)
        return encode_key(after)
    return row


def _low_with_room(tables: Tables, key: KeyRow, measure: tuple[int, int]) -> int:
    """Returns the lowest low that leaves room for a chunk. Queues that still had to get what is below find the gap when
    they are served."""
    options, (messages, body_bytes) = key.options, measure
    offset = bytes_before = 0
    if options.capacity_messages:
        offset = key.head + messages - options.capacity_messages
    if options.capacity_bytes:
        bytes_before = key.body_bytes + body_bytes - options.capacity_bytes
    if offset <= key.low and (bytes_before <= 0 or bytes_before <= key.body_bytes - _kept_bytes(tables, key)):
        return key.low
    return first_row(tables, key, lambda first, header: first >= offset and header.body_bytes_before >= bytes_before)


def _check_capacity(state: State, full_name: bytes, key: KeyRow, measure: tuple[int, int]) -> None:
    """Checks that a key has room for a chunk of (messages, body bytes). Raises ResourceExhausted."""
    options = key.options
    messages, body_bytes = measure
    if options.capacity_messages:
        value = key.head - key.low + messages
        if value > options.capacity_messages:
            value -= _passed_in_first_row(state, key)
        if value > options.capacity_messages:
            raise _full(state, full_name, "messages", value, options.capacity_messages)
    if options.capacity_bytes:
        value = _kept_bytes(state.tables, key) + body_bytes
        if value > options.capacity_bytes:
            raise _full(state, full_name, "bytes", value, options.capacity_bytes)


def _passed_in_first_row(state: State, key: KeyRow) -> int:
    """Returns how many messages of the first row are only kept because the history needs others of that row. They do
    not count: no trim could make room for a publish. See `history_floor`, of which this looks at the first row alone.
    """
    if not key.options.keeps_history or key.low == key.head:
        return 0
    header = first_header(state.tables, key)
    floor = end = key.low + header.messages
    if key.options.history_messages:
        floor = min(end, max(key.low, key.head - key.options.history_messages))
    if not _is_old(key, header, state.time_ms):
        floor = key.low
    if _gives_way(key, header):
        floor = end
    return floor - key.low if floor < end else 0


def _kept_bytes(tables: Tables, key: KeyRow) -> int:
    if key.low == key.head:
        return 0
    return key.body_bytes - first_header(tables, key).body_bytes_before


def _full(state: State, full_name: bytes, what: str, value: int, limit: int) -> ResourceExhausted:
    shown = state.refusals.shown(full_name[NAME])
    return ResourceExhausted(
        f"key {shown} would keep {value} {what}; its capacity is {limit}", subject=shown, limit=limit, value=value
    )


def history_floor(tables: Tables, key: KeyRow, wall_ms: int) -> int:
    """Returns an offset below which the key's history needs nothing at `wall_ms`; the head if it has no history. Looks
    at some rows only: there may be a higher one. What it returns never goes back while the options stay.

    The history gives way to a capacity in bytes: it has at most half of it. Else a key at its capacity could be full of
    history, and take no publish for as long as that stays. Where the oldest messages make room, it may have all."""
    options = key.options
    floor = key.head
    if options.history_messages:
        floor = max(key.low, key.head - options.history_messages)
    if options.history_age_s:
        floor = min(floor, _floor_of_age(tables, key, wall_ms - 1000 * options.history_age_s))
    if options.capacity_bytes and not options.drops_oldest and floor < key.head:
        floor = max(floor, _floor_of_bytes(tables, key, key.body_bytes - options.capacity_bytes // 2))
    return floor


def has_old_history(tables: Tables, key: KeyRow, wall_ms: int) -> bool:
    """Returns whether the key's history does not need its first chunk at `wall_ms`. Looks at one row."""
    options = key.options
    if key.low == key.head:
        return False
    header = first_header(tables, key)
    if _gives_way(key, header):
        return True
    if options.history_messages and key.head - options.history_messages <= key.low:
        return False
    return _is_old(key, header, wall_ms)


def _gives_way(key: KeyRow, first: LogRow) -> bool:
    """Returns whether the key's history gives way to a capacity in bytes, as far as its first row goes."""
    options = key.options
    bounded = options.capacity_bytes and not options.drops_oldest
    return bool(bounded) and first.body_bytes_before < key.body_bytes - options.capacity_bytes // 2


def _is_old(key: KeyRow, header: LogRow, wall_ms: int) -> bool:
    """Returns whether a row is too old for the key's history; True also if that has no bound by age."""
    return not key.options.history_age_s or header.time_ms < wall_ms - 1000 * key.options.history_age_s


def _floor_of_bytes(tables: Tables, key: KeyRow, from_bytes: int) -> int:
    """Returns the first row with at least `from_bytes` of the key's bytes before it, or a row below, or the head."""
    return _floor(tables, key, lambda header: header.body_bytes_before < from_bytes)


def _floor_of_age(tables: Tables, key: KeyRow, since_ms: int) -> int:
    """Returns where the first message published at `since_ms` or later is, or an offset below. Times of records, so of
    rows, never go back."""
    return _floor(tables, key, lambda header: header.time_ms < since_ms)


def _floor(tables: Tables, key: KeyRow, is_below: Callable[[LogRow], bool]) -> int:
    """Returns where the rows end of which `is_below` is true, or an offset below: it must be true of all rows before
    one of which it is. From the low on, rows are looked at in steps that double, then the last step is halved."""
    low, high = key.low, min(key.head, key.low + HISTORY_MESSAGES_PER_TRIM)
    step = 1
    while low < high:
        probe = min(low + step - 1, high - 1) if step else (low + high) // 2
        first, row = next(tables.log.heads(key.id, key.low, probe))
        header = decode_log(row)
        if is_below(header):
            low = first + header.messages
            step *= 2
        else:
            high, step = first, 0
    return low
