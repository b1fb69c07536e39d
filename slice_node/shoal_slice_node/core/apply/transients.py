"""Drops transient queues that nothing consumed for as long as they allow. Their register is kept in state.py.

The leader decides which: it knows which sessions consume what, and since when. An EXPIRE record drops them, so that
replay and replicas agree. A queue that was declared or bound since the leader looked stays.
"""

from __future__ import annotations

from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.drops import drop_queue
from shoal_slice_node.core.apply.farewells import say_at_end
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import decode_expire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP, DROP_BINDINGS_MAX, DROPPED_WITH_BINDINGS_MAX
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.rows.transient_row import decode_transient
from shoal_slice_node.core.turns import Work


def apply_expire(state: State, payload: bytes) -> Work[None]:
    """Applies an EXPIRE record: drops the transient queues that it names, but those that are gone already, and those
    that were declared or bound since. A farewell of such a queue is said before."""
    decided_lsn, queues = decode_expire(payload)
    budget = BindingBudget(DROP_BINDINGS_MAX if len(queues) <= DROPPED_WITH_BINDINGS_MAX else 0)
    tables = state.tables
    for number, (queue_id, _) in enumerate(queues):
        renewed = tables.transient.get(queue_id)
        row = None if renewed is None else tables.queue.get(queue_id)
        if renewed is not None and row is not None:
            if decode_transient(renewed) > decided_lsn:
                state.note_transient(Queue.decode(tables, queue_id, row))
            else:
                say_at_end(state, queue_id, number)
                row = tables.queue.get(queue_id)  # It may have been for the queue's direct key, and bound it.
                assert row is not None
                drop_queue(state, queue_id, name_of(row), row, budget)
                state.effects.counters.queues_expired += 1
        if number % APPLIED_PER_STEP == 0:
            yield
