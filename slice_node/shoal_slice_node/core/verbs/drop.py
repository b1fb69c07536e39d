"""The verb drop: drops queues with all that they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.drops import drop
from shoal_slice_node.core.checking.columns import check_named
from shoal_slice_node.core.limits import DROP_BINDINGS_MAX, RECLAIM_QUEUE_COST
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import bindings_and_details
from shoal_slice_node.core.verbs.verb import Change, Columns, GrowingNames, Measures, Price, Verb


def _check(number: int, step: wire.Drops, _: Measures) -> int:
    return check_named(number, "drops", step)


def _bindings(tables: Tables, names: Iterable[bytes], growing: GrowingNames) -> Iterable[int]:
    """Yields what each drop may end at once: no more than a bucket of bindings and as many details."""
    for name in names:
        if name in growing:
            yield RECLAIM_QUEUE_COST
        else:
            yield min(sum(bindings_and_details(tables, name)), RECLAIM_QUEUE_COST)


def _apply(change: Change, step: wire.Drops) -> Work[wire.StepOutcome]:
    state, budget = change.state, change.dropping
    outcome = yield from change.each_queue(
        step.queues, step.incarnations, lambda queue, incarnation: drop(state, queue, incarnation, budget)
    )
    state.effects.counters.drops += len(step.queues) - len(outcome.refusals)
    return outcome


def _columns(step: wire.Drops) -> Columns:
    return Columns(step.queues)


DROP: Final = Verb("drop", _check, _apply, _columns, {2: None}, price=Price(DROP_BINDINGS_MAX, _bindings))
