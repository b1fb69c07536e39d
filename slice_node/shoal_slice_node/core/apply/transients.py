"""Keeps the register of transient queues, and drops those that nothing consumed for as long as they allow.

The leader decides which: it knows who consumes what, and since when. An EXPIRE record drops them, so that replay and
replicas agree. A queue that was declared again since the leader looked stays.
"""

from __future__ import annotations

from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.drops import drop_queue
from shoal_slice_node.core.apply.records import decode_expire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP, DROP_BINDINGS_MAX
from shoal_slice_node.core.rows.transient_row import decode_transient
from shoal_slice_node.core.turns import Work


def expire(state: State, payload: bytes) -> Work[None]:
    """Applies an EXPIRE record: drops the transient queues that it names, but those that are gone already, and those
    that were declared again since."""
    looked_at_lsn, queues = decode_expire(payload)
    budget = BindingBudget(DROP_BINDINGS_MAX)
    for number, (queue_id, _) in enumerate(queues):
        row = state.tables.transient.get(queue_id)
        queue = None if row is None else state.load_queue_by_id(queue_id)
        if row is not None and queue is not None:
            if decode_transient(row) > looked_at_lsn:
                state.note_transient(queue)
            else:
                drop_queue(state, queue, budget)
                state.effects.counters.expired += 1
        if number % APPLIED_PER_STEP == 0:
            yield
