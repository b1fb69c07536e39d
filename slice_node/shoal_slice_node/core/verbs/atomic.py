"""Applies the steps of a change; tries those of an atomic change first, on an overlay over the tables.

An atomic change is done whole or not at all. Any request of it may be refused, and whether it is may depend on the
requests before it. So the whole change is applied once on an overlay, which is dropped. If nothing was refused, it is
applied again, to the tables; both passes see the same, so the second is not refused either. Belongs here: the two
passes, and the form in which a refusal is remembered. Not here: what steps do (one module for each verb).
"""

from __future__ import annotations

from shoal_contract.errors import ShoalError, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.changes import Checked
from shoal_slice_node.core.verbs.table import VERBS
from shoal_slice_node.core.verbs.verb import Change, FirstRefusal


def apply_steps(state: State, checked: Checked, time_ms: int) -> Work[wire.Outcome]:
    """Applies all steps of a change. If the change is atomic, it was tried before: a refusal is a defect then."""
    outcome = wire.Outcome()
    change = Change(state, checked.measures, time_ms, checked.change.atomic)
    for step in checked.change.steps:
        field = step.WhichOneof("step") or ""
        outcome.steps.append((yield from VERBS[field].apply(change, getattr(step, field))))
    return outcome


def try_atomic(state: State, checked: Checked, time_ms: int) -> Work[wire.Outcome | None]:
    """Tries an atomic change. Returns None if all of it can be done; else the outcome that says what was refused
    first: it ends with the step of this request, and nothing else is in it. The state stays as it is."""
    tried = state.tried()
    change = Change(tried, checked.measures, time_ms, atomic=True)
    for number, step in enumerate(checked.change.steps):
        field = step.WhichOneof("step") or ""
        try:
            yield from VERBS[field].apply(change, getattr(step, field))
        except FirstRefusal as refusal:
            state.effects.full += tried.effects.full
            outcome = wire.Outcome(steps=[wire.StepOutcome() for _ in range(number + 1)])
            first = outcome.steps[number].refusals.add(request=refusal.number)
            _named(refusal.error, f"step {number} ({field}), request {refusal.number}").write(first.error)
            return outcome
    return None


def _named(error: ShoalError, place: str) -> ShoalError:
    """Returns the error of one request as that of the whole change."""
    return type(error)(
        f"{error.message} ({place} of a transaction: nothing of it was done)",
        subject=error.subject,
        limit=error.limit,
        value=error.value,
        map_version=error.map_version,
        owner=error.owner,
    )


def refusal_of(outcome: bytes) -> ShoalError | None:
    """Returns why an atomic change was refused, by its outcome; None if it was done."""
    steps = wire.Outcome.FromString(outcome).steps
    refusals = steps[-1].refusals if steps else ()
    return from_wire(refusals[0].error) if refusals else None
