"""Applies one record to a state, by its kind.

Not here: what becomes of a record that cannot be applied (engine.py).
"""

from __future__ import annotations

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply.acks import apply_acks
from shoal_slice_node.core.apply.drops import apply_reclaim
from shoal_slice_node.core.apply.due import apply_due
from shoal_slice_node.core.apply.farewells import apply_farewells
from shoal_slice_node.core.apply.imports import check_next_chunk
from shoal_slice_node.core.apply.producers import heard, remember, repeated_answer
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Kind,
    decode_change,
    decode_change_head,
    decode_ownership,
)
from shoal_slice_node.core.apply.retries import apply_retries
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.transients import apply_expire
from shoal_slice_node.core.apply.trims import apply_trims
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.atomic import apply_steps, refusal_of, try_atomic
from shoal_slice_node.core.verbs.changes import UNKNOWN_STEP, Checked, check_change


def apply_record(state: State, record: Record, checked: Checked | None = None) -> Work[None]:
    """Applies a record in steps. What comes of it is in the state's effects. `checked`: the change of a CHANGE record,
    if it is checked already. Raises if the record cannot be applied: the tables may hold a part of it then."""
    kind = record.kind
    if kind == Kind.CHANGE:
        yield from _change(state, record, checked)
    elif kind == Kind.ACKS:
        apply_acks(state, record.payload)
    elif kind == Kind.TRIM:
        apply_trims(state, record.payload)
    elif kind == Kind.RECLAIM:
        yield from apply_reclaim(state, record.payload)
    elif kind == Kind.OWNERSHIP:
        state.set_owned(*decode_ownership(record.payload))
    elif kind == Kind.EXPIRE:
        yield from apply_expire(state, record.payload)
    elif kind == Kind.RETRY:
        yield from apply_retries(state, record.payload)
    elif kind == Kind.DUE:
        yield from apply_due(state, record.payload)
    elif kind == Kind.FAREWELL:
        yield from apply_farewells(state, record.payload)
    else:
        raise ValueError(f"its kind {kind} is not known to this version")


def _change(state: State, record: Record, checked: Checked | None) -> Work[None]:
    effects, time_ms = state.effects, record.time_ms
    head = decode_change_head(record.payload)
    numbered = head.producer != NO_PRODUCER
    try:
        if checked is None:
            checked = check_change(decode_change(record.payload)[1])
        repeated = repeated_answer(state, head) if numbered else None
        if numbered and repeated is None and checked.in_run:
            check_next_chunk(state, head)
    except ShoalError as error:
        if error.subject == UNKNOWN_STEP:
            raise  # A newer version knew it: if this node refused it, tables would differ unnoticed.
        effects.refused = error.with_traceback(None)  # That has the effects, which have the error: a circle.
        return
    if repeated is not None:
        effects.refused = refusal_of(repeated) if checked.change.atomic else None
        effects.outcome = repeated if effects.refused is None else None
        heard(state, head.producer, time_ms)
        return
    if checked.change.atomic:
        refused = yield from try_atomic(state, checked, time_ms)
        if refused is not None:
            _answer(state, head, refused.SerializeToString(), True, time_ms)
            return
    state.refusals.begin()
    outcome = yield from apply_steps(state, checked, time_ms)
    state.refusals.begin()
    _answer(state, head, outcome.SerializeToString(), False, time_ms)


def _answer(state: State, head: ChangeHead, outcome: bytes, refused: bool, time_ms: int) -> None:
    """Notes the outcome of a change, and remembers it for repeats of the frame. `refused`: the change was atomic,
    and nothing of it was done."""
    effects = state.effects
    if refused:
        effects.refused = refusal_of(outcome)
    else:
        effects.outcome = outcome
    if head.producer != NO_PRODUCER:
        remember(state, head, outcome, time_ms)
