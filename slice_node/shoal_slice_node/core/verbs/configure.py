"""The verb configure: gives keys options."""

from __future__ import annotations

from typing import Final

from shoal_contract.errors import ShoalError
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.key_options import configure
from shoal_slice_node.core.checking.columns import bounded, check_bindable
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Configures, _: Measures) -> int:
    operations = bounded(len(step.keys))
    check_bindable(step.keys)
    KeyOptions.of_wire(step.options).check()
    return operations


def _apply(change: Change, step: wire.Configures) -> Work[wire.StepOutcome]:
    outcome, options = wire.StepOutcome(), KeyOptions.of_wire(step.options)
    for number, key in enumerate(step.keys):
        try:
            configure(change.state, key, options)
        except ShoalError as error:
            outcome.refusals.append(change.refusal(number, error))
        if number % APPLIED_PER_STEP == 0:
            yield
    return outcome


def _columns(step: wire.Configures) -> Columns:
    return Columns(keys=step.keys)


CONFIGURE: Final = Verb("configure", _check, _apply, _columns, {}, atomic=True)
