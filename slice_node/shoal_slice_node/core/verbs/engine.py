"""Applies journal records to the tables. Deterministic: the same records give the same tables, on the leader, on
replicas and in replay. Records are applied only after they are durable, so the tables never hold changes that may be
lost.

Apply is total. A change was checked before it was journaled (changes.py); a change that breaks a rule all the same
is refused, here as on every node. A record kind or a step that this version does not know must not be skipped, or the
nodes' tables would differ unnoticed: it stops the node with its LSN and reason, and `shoal repair` can set it aside
(set_aside.py).
"""

from __future__ import annotations

from shoal_contract.errors import Corrupt, ShoalError
from shoal_contract.journal_record import SET_ASIDE, Record
from shoal_slice_node.core.apply.acks import apply_acks
from shoal_slice_node.core.apply.drops import apply_reclaim
from shoal_slice_node.core.apply.due import apply_due
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.farewells import apply_farewells
from shoal_slice_node.core.apply.imports import check_next_chunk
from shoal_slice_node.core.apply.interest import Interest
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
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work, finish
from shoal_slice_node.core.verbs.atomic import apply_steps, refusal_of, try_atomic
from shoal_slice_node.core.verbs.changes import UNKNOWN_STEP, Checked, check_change
from shoal_slice_node.core.verbs.set_aside import keep_places


class Engine:
    """Applies records to one slice's tables. `interest` says which effects are wanted; None: none (replay)."""

    def __init__(self, tables: Tables, interest: Interest | None = None) -> None:
        self.state = State(tables, interest or Interest())

    def apply(self, record: Record, checked: Checked | None = None) -> Effects:
        """Applies a record as `in_steps` does, but all at once."""
        return finish(self.in_steps(record, checked))

    def in_steps(self, record: Record, checked: Checked | None = None) -> Work[Effects]:
        """Applies a record in steps. Between two steps the tables hold only a part of the record: no other code may
        read them, and the record must be applied to its end.

        `checked`: the change of a CHANGE record, if the caller has checked it already.

        Raises Corrupt, with the LSN as its value, for a record that cannot be applied: the tables are then of no use.
        """
        state = self.state
        effects = state.effects = Effects()
        if record.flags & SET_ASIDE:
            state.lsn, state.time_ms = record.lsn, record.time_ms
            effects.set_aside = True
            yield from keep_places(state, record)
            state.add_totals(effects)
            return effects
        try:
            state.lsn, state.time_ms = record.lsn, record.time_ms
            if record.epoch != state.epoch:
                state.begin_epoch(record.epoch)
            yield from self._apply(record, checked)
        except Exception as error:
            raise unappliable(record, error) from error
        state.add_totals(effects)
        return effects

    def _apply(self, record: Record, checked: Checked | None) -> Work[None]:
        kind = record.kind
        if kind == Kind.CHANGE:
            yield from self._change(record, checked)
        elif kind == Kind.ACKS:
            apply_acks(self.state, record.payload)
        elif kind == Kind.TRIM:
            apply_trims(self.state, record.payload)
        elif kind == Kind.RECLAIM:
            yield from apply_reclaim(self.state, record.payload)
        elif kind == Kind.OWNERSHIP:
            self.state.set_owned(*decode_ownership(record.payload))
        elif kind == Kind.EXPIRE:
            yield from apply_expire(self.state, record.payload)
        elif kind == Kind.RETRY:
            yield from apply_retries(self.state, record.payload)
        elif kind == Kind.DUE:
            yield from apply_due(self.state, record.payload)
        elif kind == Kind.FAREWELL:
            yield from apply_farewells(self.state, record.payload)
        else:
            raise ValueError(f"its kind {kind} is not known to this version")

    def _change(self, record: Record, checked: Checked | None) -> Work[None]:
        effects, time_ms = self.state.effects, record.time_ms
        head = decode_change_head(record.payload)
        numbered = head.producer != NO_PRODUCER
        try:
            if checked is None:
                checked = check_change(decode_change(record.payload)[1])
            repeated = repeated_answer(self.state, head) if numbered else None
            if numbered and repeated is None and checked.in_run:
                check_next_chunk(self.state, head)
        except ShoalError as error:
            if error.subject == UNKNOWN_STEP:
                raise  # A newer version knew it: if this node refused it, tables would differ unnoticed.
            effects.refused = error.with_traceback(None)  # That has the effects, which have the error: a circle.
            return
        if repeated is not None:
            effects.refused = refusal_of(repeated) if checked.change.atomic else None
            effects.outcome = repeated if effects.refused is None else None
            heard(self.state, head.producer, time_ms)
            return
        if checked.change.atomic:
            refused = yield from try_atomic(self.state, checked, time_ms)
            if refused is not None:
                self._answer(head, refused.SerializeToString(), True, time_ms)
                return
        self.state.refusals.begin()
        outcome = yield from apply_steps(self.state, checked, time_ms)
        self.state.refusals.begin()
        self._answer(head, outcome.SerializeToString(), False, time_ms)

    def _answer(self, head: ChangeHead, outcome: bytes, refused: bool, time_ms: int) -> None:
        """Notes the outcome of a change, and remembers it for repeats of the frame. `refused`: the change was atomic,
        and nothing of it was done."""
        effects = self.state.effects
        if refused:
            effects.refused = refusal_of(outcome)
        else:
            effects.outcome = outcome
        if head.producer != NO_PRODUCER:
            remember(self.state, head, outcome, time_ms)


def unappliable(record: Record, error: Exception) -> Corrupt:
    """Returns the error that stops a node before a record that cannot be applied."""
    try:
        kind = Kind(record.kind).name
    except ValueError:
        kind = f"kind {record.kind}"
    return Corrupt(
        f"journal record {record.lsn} ({kind}) cannot be applied: {type(error).__name__}: {error}. The slice stops"
        f" before it. `shoal repair PATH --skip {record.lsn}`, PATH being this node's data folder, sets it aside:"
        " what it asked for is then lost",
        subject=f"journal record {record.lsn}",
        value=record.lsn,
    )
