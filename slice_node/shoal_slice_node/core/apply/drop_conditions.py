"""Drops queues on conditions: unused, empty. A refusal is a Conflict that names the queue and says why.

The leader alone knows if a session consumes a queue, and the record says so as IN_USE. That a queue is empty follows
from the tables: a binding has a backlog if its cursor, or the key's low if that is higher, is below the key's head. So
a look costs a few rows for each binding, and is bounded.
"""

from __future__ import annotations

from typing import Final

from shoal_contract.errors import Conflict, ResourceExhausted, TooLarge
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import existing_queue
from shoal_slice_node.core.apply.drops import drop
from shoal_slice_node.core.apply.lookups import bound_key
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import EMPTY_BINDINGS_MAX
from shoal_slice_node.core.rows.detail_row import KEY_ID, cursor_and_end, detail_key, done_end_of
from shoal_slice_node.core.rows.key_row import head_of, low_of
from shoal_slice_node.core.tables.tables import Tables

IN_USE: Final = (1 << 64) - 1
"""Stands in a record for the incarnation of a queue that is to be dropped if unused, and is used."""


def drop_if(
    state: State,
    name: bytes,
    incarnation: int,
    budget: BindingBudget,
    if_unused: bool,
    looking: BindingBudget | None,
) -> int:
    """Drops a queue as `drop` does, if the conditions hold. `looking`: the bindings that may still be looked at for a
    backlog; None: the queue need not be empty.

    Raises NoSuchQueue, Conflict; TooLarge and ResourceExhausted, where looking for a backlog would cost too much.
    """
    queue = existing_queue(state, name)
    if if_unused and incarnation == IN_USE:
        shown = state.refusals.shown(name)
        raise Conflict(f"queue {shown} is in use, and not dropped: a session consumes it", subject=shown)
    if looking is not None and (not incarnation or queue.incarnation in (0, incarnation)):
        _check_empty(state, queue, looking)
    return drop(state, name, incarnation, budget)


def _check_empty(state: State, queue: Queue, looking: BindingBudget) -> None:
    """Checks that a queue is empty. Each binding costs once, with a detail row or without, and those that have ended,
    too."""
    tables = state.tables
    if queue.details > looking.remaining:
        raise _too_many(state, queue, max(queue.bindings, queue.details))
    without = queue.bindings
    for row_key, row in tables.detail.scan(queue.id) if queue.details else ():
        looking.remaining -= 1
        without -= not cursor_and_end(row)[1]
        if _has_backlog(tables, row_key[KEY_ID], row):
            raise _not_empty(state, queue)
    if without > looking.remaining:
        raise _too_many(state, queue, queue.details + without)
    looking.remaining -= without
    for key_id, _, cursor in queue.entries():
        key_row = bound_key(tables, key_id)[1]
        in_detail = queue.details and tables.detail.get(detail_key(queue.id, key_id)) is not None
        if max(cursor, low_of(key_row)) < head_of(key_row) and not in_detail:
            raise _not_empty(state, queue)


def _has_backlog(tables: Tables, key_id: bytes, detail_row: bytes) -> bool:
    """Returns whether a binding with a detail row still has messages to get that its key keeps."""
    key_row = bound_key(tables, key_id)[1]
    cursor, end = cursor_and_end(detail_row)
    return done_end_of(detail_row, max(cursor, low_of(key_row))) < (end or head_of(key_row))


def _not_empty(state: State, queue: Queue) -> Conflict:
    shown = state.refusals.shown(queue.name)
    return Conflict(f"queue {shown} is not empty, and not dropped: it has a backlog", subject=shown)


def _too_many(state: State, queue: Queue, bindings: int) -> TooLarge | ResourceExhausted:
    """Returns the error of a queue whose bindings may not be looked at: ever, or after those of other queues in the
    same change. `bindings`: how many there are, with those that have ended."""
    shown = state.refusals.shown(queue.name)
    limit = EMPTY_BINDINGS_MAX
    if bindings > limit:
        return TooLarge(
            f"queue {shown} has {bindings} bindings, and is not dropped: whether a queue is empty is looked up for up"
            f" to {limit}. Purge it, then drop it without this condition",
            subject=shown,
            limit=limit,
            value=bindings,
        )
    return ResourceExhausted(
        f"the queues of one change that must be empty have more than {limit} bindings in all; queue {shown} was not"
        " looked at, and not dropped: ask again",
        subject=shown,
        limit=limit,
        value=bindings,
    )
