"""Keeps the places of messages whose record an operator set aside (`shoal repair --skip`).

The record may have been applied before: by an earlier version, or before the store was damaged. Then later messages
have offsets behind its own, and acks in the journal name those. So what it published is appended all the same, and has
expired when it comes: no consumer gets it, all are told of a gap, and everything behind it stays where it was.

Not here: what else a set-aside record asked for, which is lost; records that publish what the tables say (RETRY, DUE,
FAREWELL, EXPIRE), as only applying them would say what that was.
"""

from __future__ import annotations

from contextlib import suppress

from shoal_contract.chunk import measure_chunk
from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply.producers import repeated_answer
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.apply.records import NO_PRODUCER, Kind, decode_change
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.atomic import try_atomic
from shoal_slice_node.core.verbs.changes import Checked, check_change


def keep_places(state: State, record: Record) -> Work[None]:
    """Appends what a set-aside CHANGE record published, as messages that have expired. Does nothing for other kinds,
    for a change that this version does not understand, and for a transaction that would be refused. A key that the same
    record was the first to bind gets nothing. Never raises: what fails here too is left out, on every node in the same
    way."""
    checked = _checked(state, record)
    if checked is None:
        return
    if checked.change.atomic:
        with suppress(Exception):
            if (yield from try_atomic(state, checked, record.time_ms)) is not None:
                return
    for step in checked.change.steps:
        sent = step.publishes
        if sent.not_before_ms:
            continue  # Its messages have no offsets yet.
        for number, (key, chunk) in enumerate(zip(sent.keys, sent.chunks, strict=False)):
            with suppress(Exception):
                publish(
                    state,
                    key,
                    chunk,
                    measure_chunk(chunk),
                    sent.mandatory,
                    record.time_ms,
                    expires_ms=record.time_ms,
                )
            if number % APPLIED_PER_STEP == 0:
                yield


def _checked(state: State, record: Record) -> Checked | None:
    """Returns the change of a CHANGE record; None: it is of another kind, or cannot be read, or repeats an earlier
    one."""
    if record.kind != Kind.CHANGE:
        return None
    try:
        head, data = decode_change(record.payload)
        if head.producer != NO_PRODUCER and repeated_answer(state, head) is not None:
            return None
        return check_change(data)
    except Exception:
        return None
