"""The verb import: a bulk load's way to make queues with their bindings. Sessions may not use it."""

from __future__ import annotations

from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.imports import apply_imports
from shoal_slice_node.core.checking.columns import bounded, check_bindable, same
from shoal_slice_node.core.checking.session_frames import check_queue_names
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import ranges_cost
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Imports, _: Measures) -> int:
    operations = bounded(len(step.queues) + len(step.keys))
    same(number, "imports", "key_counts", len(step.key_counts), len(step.queues))
    same(number, "imports", "keys", len(step.keys), sum(step.key_counts))
    if step.starts:
        same(number, "imports", "starts", len(step.starts), len(step.keys))
    check_queue_names(step.queues)
    check_bindable(step.keys)
    return operations


def _apply(change: Change, step: wire.Imports) -> Work[wire.StepOutcome]:
    outcome = yield from apply_imports(change.state, step, change.refusal)
    counters = change.state.effects.counters
    counters.declares += outcome.queues_made
    counters.binds += outcome.bindings_made
    return outcome


def _columns(step: wire.Imports) -> Columns:
    starts = [start or None for start in step.starts]
    return Columns(step.queues, step.keys, step.key_counts, starts or None, alone=True)


IMPORT: Final = Verb(
    "import", _check, _apply, _columns, {2: None, 4: None}, grows=True, ranges=ranges_cost, in_run=True, settles=True
)
