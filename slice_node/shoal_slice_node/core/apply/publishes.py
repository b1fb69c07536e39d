"""Publishes: adds one row to the key's log, however many queues are bound."""

from __future__ import annotations

from shoal_contract.names import DIRECT_PREFIX
from shoal_slice_node.core.apply.binds import bind_resolved
from shoal_slice_node.core.apply.effects import Grown
from shoal_slice_node.core.apply.expiry import expiring_published
from shoal_slice_node.core.apply.key_options import fit_capacity
from shoal_slice_node.core.apply.routing import unroutable
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.key_row import CONFIGURED, ID, NAME, decode_key, grown, head_of, low_of
from shoal_slice_node.core.rows.log_row import encode_log


def publish(
    state: State,
    key: bytes,
    chunk: bytes,
    measure: tuple[int, int],
    mandatory: bool,
    time_ms: int,
    bounded: bool = True,
    ttl_ms: int = 0,
) -> tuple[int, int]:
    """Publishes a chunk. Returns (first offset, number of queues it was routed to); (0, 0) if no queue is bound and
    the key has no history: then nothing is kept.

    `measure`: (messages, body bytes) of the chunk, which was checked with its frame. `bounded`: the key's capacity
    counts: its policy refuses a chunk beyond, or makes room. Raises NotOwner; Unroutable if mandatory and nothing is
    bound; ResourceExhausted for a key at its capacity. `ttl_ms`: for how long the chunk is valid; 0: for ever.
    """
    full_name = state.owned_name(key)
    messages, body_bytes = measure
    tables, effects = state.tables, state.effects
    row = tables.key.get(full_name)
    queues = 0 if row is None else tables.binding.count(row[ID])
    if not queues and key[:1] == DIRECT_PREFIX:
        queues = _bind_direct(state, full_name)
        row = tables.key.get(full_name)
    configured = row is not None and row[0] >= CONFIGURED
    if row is None or not (queues or (configured and not mandatory and decode_key(row).options.keeps_history)):
        if mandatory:
            raise unroutable(state, key)
        effects.published.append(None)
        effects.counters.publishes += messages  # These are not kept. What is kept the verb counts, once for each step.
        return 0, 0
    key_id = row[ID]
    if configured:
        row = fit_capacity(state, full_name, row, measure, bounded)
        effects.advanced.append(key_id)
    expires_ms = 0
    if ttl_ms:
        expires_ms = time_ms + ttl_ms
        expiring_published(state, key_id, low_of(row) == head_of(row), expires_ms)
    first, before, row = grown(row, messages, body_bytes)
    tables.log.append(key_id, first, encode_log(messages, body_bytes, time_ms, before, chunk, expires_ms))
    tables.key.put(full_name, row)
    effects.kept_messages += messages
    effects.kept_bytes += body_bytes
    effects.published.append((key_id, queues))
    if key_id in state.interest.keys or key_id in effects.bound:
        name = full_name[NAME]
        effects.events.append(Grown(key_id, name, first, messages, body_bytes, time_ms, chunk, expires_ms))
    return first, queues


def _bind_direct(state: State, full_name: bytes) -> int:
    """Binds a queue to its direct key, when the key is first used. Returns how many bindings were made. Nothing is
    checked: one binding more than a queue, or a bucket, may have is allowed for."""
    queue = state.load_queue(full_name[NAME][len(DIRECT_PREFIX) :])
    if queue is None:
        return 0
    bind_resolved(state, queue, [full_name])
    return 1
