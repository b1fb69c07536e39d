"""Defines background work: jobs that look in bounded turns for what the leader's own records should do.

Belongs here: the form of a job, and the jobs as the node lists them. Not here: how each finds its work: trimmer,
key_walk, history_walk, reclaim_list, due_list, idle_producers; in core/dispatch transients, farewells and deciding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from shoal_slice_node.core.apply.due import expired_rows_per_key
from shoal_slice_node.core.apply.records import (
    Due,
    Farewell,
    Kind,
    encode_due,
    encode_expire,
    encode_farewells,
    encode_reclaim,
    encode_retries,
    encode_trims,
)
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.background.due_list import DueList
from shoal_slice_node.core.background.history_walk import HistoryWalk
from shoal_slice_node.core.background.idle_producers import IdleProducers
from shoal_slice_node.core.background.key_walk import KeyWalk
from shoal_slice_node.core.background.reclaim_list import ReclaimList
from shoal_slice_node.core.background.trimmer import Trimmer
from shoal_slice_node.core.dispatch.farewells import Farewells
from shoal_slice_node.core.dispatch.returns import Returns
from shoal_slice_node.core.dispatch.transients import Transients
from shoal_slice_node.core.limits import EXPIRED_ROWS_PER_OPERATION, LOG_BYTES_PER_COST, RECLAIM_COST_PER_TURN
from shoal_slice_node.core.rows.due_row import expiring_key


class Proposal(NamedTuple):
    """Describes a record to be journaled. `operations`: what it costs. `make`: makes the payload as late as possible,
    when the record is written; `payload` is then not used."""

    kind: Kind
    payload: bytes
    operations: int
    make: Callable[[], bytes | None] | None = None


class Job(Protocol):
    """Describes one kind of background work. At most one of its records is under way."""

    name: str

    def turn(self, now_ms: int) -> Proposal | None:
        """Looks for work, in a bounded turn. `now_ms`: the time of a clock that only grows."""

    def refused(self, now_ms: int) -> None:
        """Notes that its last proposal was not written: what it should have done is to be found again."""


class TrimJob:
    """Proposes the trims of keys whose cursors advanced, of those with an old history, and of those that were not
    trimmed before a start, or were passed over."""

    name = "trim"

    def __init__(
        self, trimmer: Trimmer, keys: KeyWalk, histories: HistoryWalk, void: Callable[[list[bytes]], None]
    ) -> None:
        """`void`: is told which ended bindings have nothing left to get, as RECLAIM records name them."""
        self._trimmer = trimmer
        self._tell_void = void
        self._keys = keys
        self._histories = histories
        self._proposed: list[bytes] = []

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        self._keys.begin_again(self._trimmer.passed_over, self._trimmer.passed_over_lsn)
        if self._trimmer.room_for_walk:
            self._trimmer.walked(self._keys.turn(), now_ms)
        self._trimmer.advanced(self._histories.turn(now_ms, self._trimmer.wall_ms), now_ms)
        trims = self._trimmer.turn(now_ms) if self._trimmer.pending else []
        void = self._trimmer.take_void()
        if void:
            self._tell_void(void)
        self._proposed = [trim.key_id for trim in trims]
        return Proposal(Kind.TRIM, encode_trims(trims), len(trims)) if trims else None

    def refused(self, now_ms: int) -> None:
        """See Job."""
        self._trimmer.advanced(self._proposed, now_ms)


class ReclaimJob:
    """Proposes to reclaim what dropped queues and vanished keys leave."""

    name = "reclaim"

    def __init__(self, rows: ReclaimList) -> None:
        self._rows = rows
        self._proposed: Sequence[bytes] = ()

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        self._proposed = self._rows.take(RECLAIM_COST_PER_TURN)
        return _reclaiming(self._proposed)

    def refused(self, now_ms: int) -> None:
        """See Job."""
        self._rows.note(self._proposed)


class ExpireJob:
    """Proposes to drop transient queues that nothing has consumed for as long as they allow."""

    name = "expire"

    def __init__(self, transients: Transients, state: State) -> None:
        self._transients = transients
        self._state = state

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        due = self._transients.due(now_ms)
        return Proposal(Kind.EXPIRE, encode_expire(due, self._state.lsn), len(due)) if due else None

    def refused(self, now_ms: int) -> None:
        """See Job."""
        self._transients.refused()


class RetryJob:
    """Proposes what becomes of messages that came back to queues with a bound for deliveries."""

    name = "retry"

    def __init__(self, returns: Returns, state: State) -> None:
        self._returns = returns
        self._state = state

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        cost = self._returns.deciding.decide()
        # Made late: a bind below the head that comes between would have it decided again (BindBacks).
        return Proposal(Kind.RETRY, b"", cost, self._payload) if cost else None

    def _payload(self) -> bytes | None:
        """Returns the record; None if nothing of what was decided rests any more. What a record ended since then may be
        promised again by a bind after it, which the LSN would not tell."""
        retries = self._returns.deciding.decided()
        return encode_retries(retries, self._state.lsn) if retries else None

    def refused(self, now_ms: int) -> None:
        """See Job. The next turn finds what was not done."""


class DueJob:
    """Proposes to do what is due by the machine's clock."""

    name = "due"

    def __init__(self, rows: DueList) -> None:
        self._rows = rows
        self._proposed: list[Due] = []

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        self._proposed, chunk_bytes = self._rows.take()
        if not self._proposed:
            return None
        expiring = sum(expiring_key(due.row_key) is not None for due in self._proposed)
        rows = expiring * expired_rows_per_key(self._proposed)
        operations = len(self._proposed) + chunk_bytes // LOG_BYTES_PER_COST + rows // EXPIRED_ROWS_PER_OPERATION
        return Proposal(Kind.DUE, encode_due(self._proposed, self._rows.wall_ms), operations)

    def refused(self, now_ms: int) -> None:
        """See Job."""
        self._rows.note([due.row_key for due in self._proposed])


class FarewellJob:
    """Proposes to say the farewells of queues that nothing has consumed for long enough, and to take away the letters
    that are where they belong."""

    name = "farewell"

    def __init__(self, farewells: Farewells, state: State) -> None:
        self._farewells = farewells
        self._state = state

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        queues, arrived = self._farewells.due(now_ms), self._farewells.letters.arrived()
        if not queues and not arrived:
            return None
        make = partial(self._payload, queues, arrived)
        return Proposal(Kind.FAREWELL, b"", len(queues) + len(arrived), make)

    def _payload(self, queues: list[bytes], arrived: list[Farewell]) -> bytes:
        return encode_farewells([*self._farewells.to_say(queues), *arrived], self._state.lsn)

    def refused(self, now_ms: int) -> None:
        """See Job."""
        self._farewells.refused()
        self._farewells.letters.refused()


class ForgetProducersJob:
    """Proposes to forget producers that have been silent for long. The walk finds again what could not be written."""

    name = "producers"

    def __init__(self, producers: IdleProducers) -> None:
        self._producers = producers

    def turn(self, now_ms: int) -> Proposal | None:
        """See Job."""
        return _reclaiming(self._producers.turn(now_ms))

    def refused(self, now_ms: int) -> None:
        """See Job."""


def _reclaiming(row_keys: Sequence[bytes]) -> Proposal | None:
    return Proposal(Kind.RECLAIM, encode_reclaim(row_keys), RECLAIM_COST_PER_TURN) if row_keys else None
