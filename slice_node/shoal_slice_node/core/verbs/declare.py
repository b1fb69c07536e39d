"""The verb declare: makes queues, or their parts on this slice.

It has no price: a declare ends bindings only where an interrupted drop left a part of an older life, and the budget
that it shares with drops bounds that.
"""

from __future__ import annotations

from typing import Final

from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.declares import declare
from shoal_slice_node.core.checking.columns import check_named
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Declares, _: Measures) -> int:
    operations = check_named(number, "declares", step)
    options = QueueOptions.of_wire(step.options).check()
    if options.dead_letter:
        options.check_dead_letter(step.queues)
    return operations


def _apply(change: Change, step: wire.Declares) -> Work[wire.StepOutcome]:
    state, options, budget = change.state, QueueOptions.of_wire(step.options), change.dropping
    outcome = yield from change.each_queue(
        step.queues,
        step.incarnations,
        lambda queue, incarnation: declare(state, queue, options, incarnation, budget),
        answers=True,
    )
    state.effects.counters.declares += len(step.queues) - len(outcome.refusals)
    return outcome


def _columns(step: wire.Declares) -> Columns:
    return Columns(step.queues)


DECLARE: Final = Verb("declare", _check, _apply, _columns, {3: None}, atomic=True)
