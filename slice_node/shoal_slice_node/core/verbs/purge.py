"""The verb purge: drops the backlog of queues, in parts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Final

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.purges import purge
from shoal_slice_node.core.checking.columns import bounded, same
from shoal_slice_node.core.checking.session_frames import check_queue_names
from shoal_slice_node.core.limits import (
    APPLIED_PER_STEP,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_COST,
    PURGE_BINDINGS_MAX,
)
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import bindings_and_details
from shoal_slice_node.core.verbs.verb import Change, Columns, GrowingNames, Measures, Price, Verb


def _check(number: int, step: wire.Purges, _: Measures) -> int:
    operations = bounded(len(step.queues))
    if step.positions:
        same(number, "purges", "positions", len(step.positions), operations)
    check_queue_names(step.queues)
    return operations


def _bindings(tables: Tables, names: Iterable[bytes], growing: GrowingNames) -> Iterable[int]:
    """Yields what each purge may look at. The queue's row does not say how many done ranges its details have: the
    maximum is assumed."""
    for name in names:
        if name in growing:
            yield PURGE_BINDINGS_MAX
        else:
            bindings, details = bindings_and_details(tables, name)
            yield bindings + details * (DONE_RANGES_MAX // DONE_RANGES_PER_COST)


def _apply(change: Change, step: wire.Purges) -> Work[wire.StepOutcome]:
    outcome = wire.StepOutcome()
    state, budget = change.state, change.purging
    positions = step.positions or repeat(0)
    for number, (queue, position) in enumerate(zip(step.queues, positions, strict=False)):
        try:
            messages, left = purge(state, queue, position, budget)
        except ShoalError as error:
            messages = left = 0
            outcome.refusals.append(change.refusal(number, error))
        outcome.messages.append(messages)
        outcome.positions.append(left)
        if number % APPLIED_PER_STEP == 0:
            yield
    state.effects.counters.purges += len(step.queues) - len(outcome.refusals) - sum(map(bool, outcome.positions))
    return outcome


def _columns(step: wire.Purges) -> Columns:
    return Columns(step.queues)


PURGE: Final = Verb(
    "purge", _check, _apply, _columns, {2: None}, price=Price(PURGE_BINDINGS_MAX, _bindings), frees=True
)
