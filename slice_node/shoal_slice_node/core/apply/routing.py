"""Says to how many queues a publish to a key would go, and how one that must reach a queue is refused.

A queue is bound to its direct key when that is first used; until then it counts here all the same.
"""

from __future__ import annotations

from shoal_contract.errors import Unroutable
from shoal_contract.names import DIRECT_PREFIX
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.key_row import ID, NAME


def routed(state: State, full_name: bytes) -> int:
    """Returns the number of queues to which a publish to this key would go now."""
    row = state.tables.key.get(full_name)
    queues = 0 if row is None else state.tables.binding.count(row[ID])
    return queues or int(direct_queue(state, full_name) is not None)


def direct_queue(state: State, full_name: bytes) -> bytes | None:
    """Returns the id of the queue whose direct key this is; None: it is no direct key, or there is no such queue."""
    name = full_name[NAME]
    return state.tables.queue_by_name.get(name[1:]) if name[:1] == DIRECT_PREFIX else None


def unroutable(state: State, key: bytes) -> Unroutable:
    """Returns the refusal of a mandatory publish to a key without queues."""
    shown = state.refusals.shown(key)
    return Unroutable(f"key {shown} has no queue bound to it, and the publish is mandatory", subject=shown)
