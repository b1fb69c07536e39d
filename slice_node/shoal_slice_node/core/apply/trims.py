"""Applies trims: a key's log rows are deleted when every binding has passed them.

The leader finds each key's lowest cursor (trimmer.py) and journals it. This module applies it, so replicas agree.
"""

from __future__ import annotations

from shoal_slice_node.core.apply.expiry import low_rose
from shoal_slice_node.core.apply.key_options import history_floor
from shoal_slice_node.core.apply.lookups import row_start
from shoal_slice_node.core.apply.records import decode_trims
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.key_row import encode_key


def apply_trims(state: State, payload: bytes) -> None:
    """Applies the trims of a TRIM record. A trim of messages that are gone already, or of a vanished key, changes
    nothing. Messages that a binding was promised since the search began stay, and the key is looked at again."""
    for key_id, low, looked_at_lsn in decode_trims(payload):
        found = state.key_by_id(key_id)
        if found is None:
            continue
        full_name, key = found
        low = min(low, key.head)
        if state.left_out:
            low = row_start(state.tables, key, low)  # Offsets may have shifted: it may lie within a chunk.
        promised = state.bind_backs.promised_since(key_id, looked_at_lsn)
        if promised is not None:
            state.effects.advanced.append(key_id)
            low = min(low, row_start(state.tables, key, promised))
        if key.options.keeps_history:
            low = min(low, row_start(state.tables, key, history_floor(state.tables, key, state.time_ms)))
        if low > key.low:
            state.forget_kept(key, low)
            state.tables.log.trim(key_id, key.low, low)
            key = key._replace(low=low)
            state.tables.key.put(full_name, encode_key(key))
            low_rose(state, key)
            if key.options.keeps_history and key.options.capacity_bytes:
                state.effects.advanced.append(key_id)  # A look at what its capacity leaves to history may be partial.
        state.vanish_if_empty(full_name, key)
