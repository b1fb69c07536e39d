"""Applies journal records to the tables. Deterministic: the same records give the same tables, on the leader, on
replicas and in replay. Records are applied only after they are durable, so the tables never hold changes that may be
lost.

Apply is total. A change was checked before it was journaled (changes.py); a change that breaks a rule all the same
is refused, here as on every node. A record kind or a step that this version does not know must not be skipped, or the
nodes' tables would differ unnoticed: it stops the node with its LSN and reason, and `shoal repair` can set it aside
(set_aside.py).
"""

from __future__ import annotations

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import LEFT_OUT, SET_ASIDE, Record
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work, finish
from shoal_slice_node.core.verbs.applying import apply_record
from shoal_slice_node.core.verbs.changes import Checked
from shoal_slice_node.core.verbs.set_aside import apply_in_part


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
        effects.set_aside = bool(record.flags & SET_ASIDE)
        if record.flags & LEFT_OUT:
            state.lsn, state.time_ms = record.lsn, record.time_ms
            state.note_left_out()
            return effects
        try:
            state.lsn, state.time_ms = record.lsn, record.time_ms
            if record.epoch != state.epoch:
                state.begin_epoch(record.epoch)
            if effects.set_aside:
                yield from apply_in_part(state, record)
            else:
                yield from apply_record(state, record, checked)
        except Exception as error:
            raise unappliable(record, error) from error
        state.add_totals(effects)
        return effects


def unappliable(record: Record, error: Exception) -> Corrupt:
    """Returns the error that stops a node before a record that cannot be applied."""
    try:
        kind = Kind(record.kind).name
    except ValueError:
        kind = f"kind {record.kind}"
    return Corrupt(
        f"journal record {record.lsn} ({kind}) cannot be applied: {type(error).__name__}: {error}. The slice stops"
        f" before it. `shoal repair PATH --skip {record.lsn}`, PATH being this node's data folder, sets it aside:"
        " what cannot be applied of it is then lost",
        subject=f"journal record {record.lsn}",
        value=record.lsn,
    )
