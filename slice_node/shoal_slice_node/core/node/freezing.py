"""Decides when the changes since the last checkpoint are frozen, and freezes them: nothing else freezes.

Belongs here: the decision, for a leader and a follower alike. Replay (adapters/recovery) and the last checkpoint of a
stop (adapters/checkpoints) decide themselves, and freeze through this. Not here: writing what is frozen (the driver),
its form (core/tables/delta). The limits come from the driver.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from shoal_slice_node.core.apply.state import State


class Freezable(Protocol):
    """Describes what the decision looks at, and what freezes: the delta over a checkpoint."""

    checkpoint_lsn: int
    delta_rows_max: int

    @property
    def delta_rows(self) -> int: ...

    @property
    def delta_bytes(self) -> int: ...

    @property
    def frozen_rows(self) -> int: ...

    @property
    def frozen_bytes(self) -> int: ...

    @property
    def freezing(self) -> bool: ...

    def freeze(self, lsn: int) -> None: ...


class FreezeLimits(NamedTuple):
    """Bounds what no checkpoint has: memory of changed rows, their age, and what a start would replay."""

    delta_bytes: int
    delta_age_ms: int
    tail_operations: int
    tail_bytes: int


class Freezing:
    """Decides for one store, for as long as it is open: roles come and go meanwhile. `due` and `freeze` are to be
    called between two records."""

    def __init__(self, state: State, store: Freezable, limits: FreezeLimits) -> None:
        self._state = state
        self._store = store
        self._limits = limits
        self._changed_since_ms: int | None = None
        """When it was first seen that something was applied that no checkpoint has, nor a frozen delta."""
        self._wanted_lsn = 0
        """A checkpoint is wanted that has everything up to here."""
        self._held = False

    def is_large(self, factor: int = 1, with_frozen: bool = False) -> bool:
        """Returns whether the delta has `factor` times the rows or bytes at which it is frozen. `with_frozen`: counts
        what is frozen, too."""
        store = self._store
        rows = store.delta_rows + (store.frozen_rows if with_frozen else 0)
        size_bytes = store.delta_bytes + (store.frozen_bytes if with_frozen else 0)
        return rows >= store.delta_rows_max * factor or size_bytes >= self._limits.delta_bytes * factor

    def fit(self, delta_bytes_max: int) -> int:
        """Lets the delta be frozen at half of this memory at most: while it is written, the next one grows in the other
        half. Returns the bytes at which it is frozen."""
        limits = self._limits
        self._limits = limits._replace(delta_bytes=min(limits.delta_bytes, delta_bytes_max // 2))
        return self._limits.delta_bytes

    def want(self, lsn: int) -> None:
        """Asks for a checkpoint that has everything up to `lsn`."""
        self._wanted_lsn = max(self._wanted_lsn, lsn)

    def hold(self) -> None:
        """Lets `due` be False from now on: the node stops."""
        self._held = True

    def due(self, now_ms: int) -> bool:
        """Returns whether to freeze now: the delta is large or old, a checkpoint is wanted, or a start would replay
        much. Binds and unbinds, or publishes and acks, can cancel out and leave no rows, but are replayed all the same.
        `now_ms`: the time of a clock that never goes back."""
        store, tail, limits = self._store, self._state.tail, self._limits
        if store.freezing or self._held or self._state.lsn == store.checkpoint_lsn:
            return False
        if self._changed_since_ms is None:
            self._changed_since_ms = now_ms
        return (
            now_ms - self._changed_since_ms > limits.delta_age_ms
            or tail.operations >= limits.tail_operations
            or tail.journal_bytes >= limits.tail_bytes
            or self._wanted_lsn > store.checkpoint_lsn
            or self.is_large()
        )

    def freeze(self, lsn: int | None = None) -> None:
        """Freezes everything that is applied, with the totals of the logs. `lsn`: what the tables have, if a record is
        applied in part (Replica.save_part). Must not be called while the store is `freezing`."""
        self._state.save_local()
        self._store.freeze(self._state.lsn if lsn is None else lsn)
        self._state.tail.frozen()
        self._changed_since_ms = None
