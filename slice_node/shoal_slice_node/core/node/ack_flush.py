"""Acks gather in memory for ACK_FLUSH_MS; then records take them, a few at a time, and who asked to know is told.

What a full disk refused stays and is flushed again: whoever waits is told when it is durable, not that it was late.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind, encode_acks
from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.limits import ACK_COST_PER_RECORD, ACK_RECORDS_PER_TURN
from shoal_slice_node.core.node.commit import Commit, Item

Tell = Callable[[ShoalError | None], None]


class AckFlush:
    """One flush is under way at a time. `then` callbacks are bounded by the sessions' frames under way."""

    def __init__(self, commit: Commit, dispatcher: Dispatcher) -> None:
        self._commit = commit
        self._acks = dispatcher.acks
        self._told: list[Tell] = []
        """For the next flush."""
        self._telling: list[Tell] = []
        """For the flush under way."""
        self._records = 0
        """Of the flush under way, submitted and not back."""
        self._to_take = 0
        """Streams that those of them are expected to take which are not written yet. They may take more, or fewer."""
        self._failed = False
        self._over: ShoalError | None = None
        """Why nothing will be journaled any more: the node has ended."""

    def then(self, tell: Tell) -> None:
        """Calls `tell` once every ack taken so far is durable and in the tables, with None; or with the error."""
        self._told.append(tell)

    @property
    def under_way(self) -> bool:
        return bool(self._telling or self._records or self._acks.flushing)

    def flush(self) -> bool:
        """Begins a flush, or goes on with the one under way, by one record. Returns whether there may be one more at
        once. Not while a record is applied in part: what it does to the tables, dispatch hears afterwards."""
        assert self._commit.whole
        if self._over is not None:
            self._tell(self._over)
            return False
        if not self.under_way:
            if not (self._told or self._acks.waiting):
                return False
            self._telling, self._told = self._told, []
            self._acks.begin_flush()
            self._failed = False
        self._submit_next()
        self._finish_if_done()
        return self._may_submit()

    def _may_submit(self) -> bool:
        """Whether there is something that no record will take. The first record sees to feeds that have nothing."""
        if self._over is not None:
            return False
        if not self._records:
            return self._acks.flushing
        return self._acks.left > self._to_take and self._records < ACK_RECORDS_PER_TURN

    def _submit_next(self, cost: int = 0) -> None:
        """Submits another record, if one is needed. `cost`: what it will cost at least, as far as that is known."""
        if self._may_submit():
            streams = max(1, min(ACK_COST_PER_RECORD, self._acks.left - self._to_take))
            self._submit(streams, max(cost, streams))

    def _submit(self, streams: int, cost: int) -> None:
        """Submits a record of the next acks. They are taken when it is written: what is bound back between is known
        only for a while, and acks that were taken before it would have to be taken again, for as long as others bind.

        What they cost is known only then. `streams`: how many it takes if they cost little, and are left for it;
        `cost`: what it counts as until it is written. If it took fewer streams, the next record follows at once.
        """
        batch = AckBatch()

        def make() -> bytes | None:
            nonlocal batch
            batch, item.make = self._acks.take(ACK_COST_PER_RECORD), None
            self._to_take -= streams
            item.operations = max(1, batch.cost)
            self._submit_next(ACK_COST_PER_RECORD)
            return encode_acks(batch.acks, self._commit.applied_lsn) if batch.acks else None

        def applied(effects: Effects) -> None:
            self._records -= 1
            if effects.acks_skipped:
                self._acks.failed(batch)
                self._failed = True
            else:
                self._acks.applied(batch)
            self._submit_next(ACK_COST_PER_RECORD)
            self._finish_if_done()

        def failed(error: ShoalError) -> None:
            self._records -= 1
            if item.make is not None:
                self._to_take -= streams
            self._acks.failed(batch)
            if isinstance(error, ResourceExhausted):
                self._failed = True
                self._finish_if_done()
            else:
                self._over = error
                self._tell(error)

        self._records += 1
        self._to_take += streams
        item = Item(Kind.ACKS, b"", applied, failed, operations=cost, make=make)
        self._commit.submit(item)

    def _finish_if_done(self) -> None:
        """Everything of this flush is back. What failed is taken by the next one, and those who wait wait for that."""
        if self._records or self._acks.flushing:
            return
        if self._failed:
            self._told = [*self._telling, *self._told]
            self._telling = []
            return
        if self._telling:
            self._tell(None)

    def _tell(self, error: ShoalError | None) -> None:
        """Tells those who wait for the flush under way; or all, once nothing will be journaled any more."""
        telling, self._telling = self._telling, []
        if self._over is not None:
            telling, self._told = [*telling, *self._told], []
        for tell in telling:
            tell(error)
