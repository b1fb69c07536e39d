"""Trim: a key's log rows go when every binding has passed them.

The leader looks for each key's lowest cursor (trimmer.py) and journals it; applying that is here, so replicas
agree.
"""

from __future__ import annotations

from shoal_slice_node.core.records import decode_trims
from shoal_slice_node.core.rows.key_row import encode_key
from shoal_slice_node.core.rows.small_rows import BOUND_BACK
from shoal_slice_node.core.state import State


def apply_trims(state: State, payload: bytes) -> None:
    """A trim below what is kept, or of a vanished key, changes nothing."""
    for key_id, low, looked_at_lsn in decode_trims(payload):
        found = state.key_by_id(key_id)
        if found is None:
            continue
        if _bound_back_since(state, key_id, looked_at_lsn):
            state.effects.moved.append(key_id)
            continue
        full_name, key = found
        low = min(low, key.head)
        if low > key.low:
            state.kept.trimmed(key, low)
            state.tables.log.trim(key_id, key.low, low)
            key = key._replace(low=low)
            state.tables.key.put(full_name, encode_key(key))
        state.vanish_if_empty(full_name, key)


def _bound_back_since(state: State, key_id: bytes, lsn: int) -> bool:
    """Whether a binding came to need messages below the head after the look began: it may have been missed."""
    row = state.tables.reclaim.get(BOUND_BACK + key_id)
    if row is None:
        return False
    if int.from_bytes(row, "big") > lsn:
        return True
    state.tables.reclaim.delete(BOUND_BACK + key_id)
    return False
