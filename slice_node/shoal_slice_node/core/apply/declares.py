"""Declares queues: makes a queue at its home, and its parts on other slices.

A queue that is dropped and declared again is another queue. Its home gives each life an incarnation number, which
grows; a part on another slice is declared with this number. So a declare that was under way while the queue was dropped
brings nothing back where a newer life is known. A part that it leaves elsewhere has an older number and can be swept.
"""

from __future__ import annotations

from shoal_contract.errors import Conflict, NoSuchQueue
from shoal_contract.options import QueueOptions
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.drops import drop
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State


def declare(state: State, name: bytes, options: QueueOptions, incarnation: int, dropping: BindingBudget) -> int:
    """Makes a queue, or its part on this slice, unless it is there. Returns its incarnation.

    `incarnation`: the number that the queue's home gave it; 0 at the home. A part of an older incarnation is dropped
    and made anew. Raises Conflict if the queue exists with other options, NoSuchQueue for an incarnation that is over.
    """
    queue = state.load_queue(name)
    if incarnation:
        queue = _of_incarnation(state, name, queue, incarnation, dropping)
    if queue is None:
        return state.create_queue(name, options, incarnation or state.new_incarnation(name)).incarnation
    if queue.options != options:
        shown = state.refusals.shown(name)
        raise Conflict(f"queue {shown} exists with {queue.options.difference(options)}", subject=shown)
    if options.expires_after_s:
        state.renew_transient(queue)
    if incarnation and not queue.incarnation:
        queue.incarnation = incarnation
        queue.save()
    return queue.incarnation


def _of_incarnation(
    state: State, name: bytes, queue: Queue | None, incarnation: int, dropping: BindingBudget
) -> Queue | None:
    """Returns the part of this incarnation, or of an unknown one (0); None if the part has still to be made. Raises
    NoSuchQueue."""
    if queue is None:
        if state.is_home(name):
            raise _over(state, name, incarnation)
        return None
    if queue.incarnation > incarnation:
        raise _over(state, name, incarnation)
    if 0 < queue.incarnation < incarnation:
        drop(state, name, 0, dropping)
        return None
    return queue


def _over(state: State, name: bytes, incarnation: int) -> NoSuchQueue:
    shown = state.refusals.shown(name)
    return NoSuchQueue(
        f"queue {shown} of incarnation {incarnation} was dropped; what has its name now, if anything, is another",
        subject=shown,
        value=incarnation,
    )
