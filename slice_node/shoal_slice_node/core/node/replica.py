"""Applies what is decided already: a node's own journal after a start; later, what a leader sends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal_contract.journal_record import Record
from shoal_slice_node.core.apply.counters import Counters
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.watch import Watch
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import RECOVERED_KEYS_MAX
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.verbs.engine import Engine


class Replica:
    """Applies records to tables that hold everything up to `lsn`. `lead` makes a leader of it: do not use it then."""

    def __init__(self, tables: Tables, lsn: int = 0) -> None:
        self._engine = Engine(tables, Watch())
        self._engine.state.lsn = lsn
        self._moved: deque[bytes] = deque(maxlen=RECOVERED_KEYS_MAX)
        """The latest keys with bindings that moved in what was applied: a leader looks whether they can be trimmed."""

    @property
    def state(self) -> State:
        return self._engine.state

    def apply(self, record: Record) -> Effects:
        """Applies a record. Raises Corrupt for a record that cannot be applied."""
        effects = self._engine.apply(record)
        self._moved.extend(effects.moved)
        return effects

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
        return Node(self._engine, epoch, now_ms, dict.fromkeys(self._moved), shares, let_go)
