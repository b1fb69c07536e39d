"""The verb drop: drops queues with all that they hold; if asked, only those that are not used, or have no backlog.

The leader alone knows if a session consumes a queue, and only while it leads. It decides that when the record is
written (core/node/unused_drops.py): in the record, IN_USE stands for the incarnation of each queue that is in
use, and every node refuses those. That there is a backlog follows from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal_contract.limits import DROP_IF_EMPTY_OPERATIONS
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.drop_conditions import IN_USE, drop_if
from shoal_slice_node.core.apply.drops import drop
from shoal_slice_node.core.checking.columns import check_named
from shoal_slice_node.core.limits import DROP_BINDINGS_MAX, DROPPED_WITH_BINDINGS_MAX, RECLAIM_QUEUE_COST
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import bindings_and_details
from shoal_slice_node.core.verbs.verb import Change, Columns, GrowingNames, Measures, Price, Verb


def _check(number: int, step: wire.Drops, _: Measures) -> int:
    """Counts a drop of an empty queue as many operations: its bindings are looked at."""
    operations = check_named(number, "drops", step)
    return operations * DROP_IF_EMPTY_OPERATIONS if step.if_empty else operations


def _bindings(tables: Tables, names: Iterable[bytes], growing: GrowingNames) -> Iterable[int]:
    """Yields what each drop may end at once: no more than a bucket of bindings and as many details."""
    for name in names:
        if name in growing:
            yield RECLAIM_QUEUE_COST
        else:
            yield min(sum(bindings_and_details(tables, name)), RECLAIM_QUEUE_COST)


def _apply(change: Change, step: wire.Drops) -> Work[wire.StepOutcome]:
    state = change.state
    budget = change.dropping if len(step.queues) <= DROPPED_WITH_BINDINGS_MAX else BindingBudget(0)
    looking = change.looking if step.if_empty else None

    def request(queue: bytes, incarnation: int) -> int:
        if looking is None and not step.if_unused:
            return drop(state, queue, incarnation, budget)
        return drop_if(state, queue, incarnation, budget, step.if_unused, looking)

    outcome = yield from change.each_queue(step.queues, step.incarnations, request, answers=True)
    state.effects.counters.drops += len(step.queues) - len(outcome.refusals)
    return outcome


def _columns(step: wire.Drops) -> Columns:
    """Names the queues that the step may drop: not those that the leader found in use."""
    if step.if_unused and step.incarnations:
        pairs = zip(step.queues, step.incarnations, strict=True)
        return Columns([queue for queue, incarnation in pairs if incarnation != IN_USE])
    return Columns(step.queues)


def _leader_decides(step: wire.Drops) -> bool:
    return step.if_unused


DROP: Final = Verb(
    "drop",
    _check,
    _apply,
    _columns,
    {2: None},
    price=Price(DROP_BINDINGS_MAX, _bindings),
    leader_decides=_leader_decides,
    frees=True,
)
