"""The verb unbind: ends bindings; their backlog stays until it is consumed, unless it is discarded."""

from __future__ import annotations

from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.binds import unbind
from shoal_slice_node.core.checking.columns import check_memberships
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import ranges_cost
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Unbinds, _: Measures) -> int:
    return check_memberships(number, "unbinds", step)


def _apply(change: Change, step: wire.Unbinds) -> Work[wire.StepOutcome]:
    state, discard = change.state, step.discard
    outcome, done = yield from change.each_membership(
        step, lambda queue, keys: unbind(state, queue, keys, discard), APPLIED_PER_STEP
    )
    state.effects.counters.unbinds += done
    return outcome


def _columns(step: wire.Unbinds) -> Columns:
    return Columns(step.queues, step.keys, step.key_counts or None)


UNBIND: Final = Verb("unbind", _check, _apply, _columns, {2: None}, ranges=ranges_cost, atomic=True, frees=True)
