"""Applies what can be applied of a record that an operator set aside (`shoal repair --skip`).

The record may have been applied before: by another version, or before the store was damaged. What is behind it in the
journal then counts on what it did: the numbers of queues and keys, the offsets of messages. So as much of it as can be
is done as ever, and only what cannot is left out: of a change the steps that fail, of other kinds the whole record.
Everything is tried on an overlay first, so that what fails leaves no trace.

Not here: a record of which nothing is to be applied, as even trying does harm (LEFT_OUT).
"""

from __future__ import annotations

from shoal_contract.errors import Conflict, ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.producers import heard, remember, repeated_answer
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Kind,
    decode_change,
    decode_change_head,
    encode_change,
)
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.applying import apply_record
from shoal_slice_node.core.verbs.table import columns_of


def apply_in_part(state: State, record: Record) -> Work[None]:
    """Applies a record in steps, as far as it can be applied. A transaction is done whole or not at all. A producer's
    number counts as used whatever was left out, so that its repeats change nothing. Raises what applying raises though
    trying did not."""
    if (yield from _can_be_applied(state, record)):
        yield from apply_record(state, record)
        return
    state.note_left_out()
    change = _change_of(record)
    if change is None:
        return
    head = decode_change_head(record.payload)
    if head.producer != NO_PRODUCER and _is_repeat(state, head):
        heard(state, head.producer, record.time_ms)
        return
    outcome = wire.Outcome()
    for step in () if change.atomic else change.steps:
        one = _alone(record, step)
        state.effects.outcome = None
        if (yield from _can_be_applied(state, one)):
            yield from apply_record(state, one)
        outcome.steps.append(_outcome(state, step, record.lsn))
    state.effects.outcome = outcome.SerializeToString()
    if head.producer != NO_PRODUCER:
        remember(state, head, state.effects.outcome, record.time_ms)


def _is_repeat(state: State, head: ChangeHead) -> bool:
    try:
        return repeated_answer(state, head) is not None
    except ShoalError:  # Its answer is forgotten.
        return True


def _can_be_applied(state: State, record: Record) -> Work[bool]:
    """Applies a record to an overlay, which is dropped. Returns whether that worked. Raises MemoryError: another node,
    or another start, might have had enough."""
    try:
        yield from apply_record(state.tried(), record)
    except MemoryError:
        raise
    except Exception:
        return False
    return True


def _change_of(record: Record) -> wire.Change | None:
    """Returns the change of a CHANGE record; None: it is of another kind, or cannot be read."""
    if record.kind != Kind.CHANGE:
        return None
    try:
        return wire.Change.FromString(decode_change(record.payload)[1])
    except Exception:
        return None


def _alone(record: Record, step: wire.Step) -> Record:
    """Returns a record of one step of this one."""
    change = wire.Change(steps=[step]).SerializeToString()
    return record._replace(payload=encode_change(ChangeHead(NO_PRODUCER, 0, 0), change))


def _outcome(state: State, step: wire.Step, lsn: int) -> wire.StepOutcome:
    """Returns what the producer is answered of a step that was tried: its outcome, or that it was left out."""
    if state.effects.outcome is not None:
        return wire.Outcome.FromString(state.effects.outcome).steps[0]
    error = Conflict(
        f"this could not be applied, and was left out as an operator decided (journal record {lsn})",
        subject=f"journal record {lsn}",
    )
    columns = columns_of(step)
    requests = max(1, len(columns.keys), len(columns.queues))
    return wire.StepOutcome(refusals=[state.refusals.to_wire(number, error) for number in range(requests)])
