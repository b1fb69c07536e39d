"""Follows: applies what is decided already, a node's own journal after a start and, later, what a leader sends.

A node's roles are states of a running process: it opens its tables as a Replica, leads in one epoch as a Node (`lead`),
and is a Replica again when it no longer leads (`after`). What belongs to a role is made with it and dropped with it;
the tables stay. The process's side: adapters/roles.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply.counters import Counters
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import ADVANCED_NOTED_MAX
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work, finish
from shoal_slice_node.core.verbs.engine import Engine


class Replica:
    """Applies records to tables that hold everything up to `lsn`. `lead` makes a leader of it: do not use it then."""

    def __init__(self, tables: Tables, lsn: int = 0, engine: Engine | None = None) -> None:
        """`engine`: that of these tables, if there is one already."""
        self._engine = engine or Engine(tables, Interest())
        self._engine.state.lsn = lsn
        self._advanced: OrderedDict[bytes, None] = OrderedDict()
        """The latest keys with cursors that advanced in what was applied: a leader scans them for trims."""
        self._passed_over = False
        """There were more."""

    @classmethod
    def after(cls, node: Node, error: ShoalError) -> Replica:
        """Returns the node as a replica: it leads no longer. What was asked of it and is not answered fails with
        `error`, which must say that the outcome is unknown: its record may be durable here, or elsewhere. Sessions,
        deliveries and acks that are in no record are dropped. The tables hold everything up to `commit.applied_lsn`:
        records after it, which are in the journal already, have to be applied again, or cut off."""
        node.commit.finish_record()
        node.commit.end(error, error)
        node.acks.end(error)
        node.turns.end(error)
        node.state.interest = Interest()
        replica = cls(node.state.tables, node.commit.applied_lsn, node.engine)
        replica._note(node.trimmer.noted)
        replica._passed_over |= bool(node.trimmer.passed_over)
        return replica

    @property
    def state(self) -> State:
        return self._engine.state

    def apply(self, record: Record) -> Effects:
        """Applies a record. Raises Corrupt for a record that cannot be applied."""
        return finish(self.in_steps(record))

    def in_steps(self, record: Record) -> Work[Effects]:
        """Applies a record as `apply` does, in steps. Between two of them no other code may read the tables; but if
        `may_stop_within` says so, `save_part` makes them ready for a freeze."""
        effects = yield from self._engine.in_steps(record)
        self._engine.state.tail.applied(1, len(record.payload))
        self._note(effects.advanced)
        return effects

    @staticmethod
    def may_stop_within(record: Record) -> bool:
        """Returns whether tables that hold a part of the record may be saved: applied again to them, it goes on behind
        that part. Only a DUE record may change more bytes than it has."""
        return record.kind == Kind.DUE

    def save_part(self) -> int:
        """Saves how far a record is that is applied in part, and adds to the totals what it has done. Returns the LSN
        that the tables have: that of the record before."""
        state = self._engine.state
        state.save_part()
        return state.lsn - 1

    def _note(self, key_ids: Iterable[bytes]) -> None:
        advanced = self._advanced
        for key_id in key_ids:
            advanced[key_id] = None
            advanced.move_to_end(key_id)  # It is the latest one now.
            if len(advanced) > ADVANCED_NOTED_MAX:
                advanced.popitem(last=False)
                self._passed_over = True

    def lead(
        self,
        epoch: int,
        now_ms: int,
        shares: DispatchShares | None = None,
        let_go: Callable[[int], None] = lambda size_bytes: None,
    ) -> Node:
        """Returns the same node as the leader of its slice in this epoch: counters begin anew, consumers must attach.
        The arguments are Node's."""
        self._engine.state.counters = Counters()
        return Node(self._engine, epoch, now_ms, self._advanced, shares, let_go, self._passed_over)
