"""Flushes acks: they gather in memory for ACK_FLUSH_MS; then records take them, a few at a time, and callers that wait
are told.

Acks that a full disk refused stay and are flushed again: callers are told when they are durable, not that they were
late.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind, encode_acks
from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.limits import ACK_COST_PER_RECORD, ACK_RECORDS_PER_TURN
from shoal_slice_node.core.node.commit import Commit, Item

Tell = Callable[[ShoalError | None], None]


class _Waiting(NamedTuple):
    """Describes a callback. `before`: the number of flushes that had begun when it came. `feeds`: whose acks it waits
    for; None: for those of all."""

    tell: Tell
    before: int
    feeds: Collection[Feed] | None


class _AckRecord:
    """Follows one record of acks: what its item calls. It does not name the item, which would be a circle for each
    record."""

    __slots__ = ("_batch", "_flush", "_streams")

    def __init__(self, flush: AckFlush, streams: int) -> None:
        self._flush = flush
        self._streams = streams
        self._batch: AckBatch | None = None

    def make(self, item: Item) -> bytes | None:
        self._batch, payload = self._flush.make(item, self._streams)
        return payload

    def applied(self, effects: Effects) -> None:
        self._flush.record_applied(self._batch or AckBatch(), effects)

    def failed(self, error: ShoalError) -> None:
        self._flush.record_failed(self._batch, self._streams, error)


class AckFlush:
    """Flushes acks, with one flush under way at a time. The sessions' frames under way bound the `then` callbacks."""

    def __init__(self, commit: Commit, dispatcher: Dispatcher) -> None:
        self._commit = commit
        self._acks = dispatcher.acks
        self._told: list[_Waiting] = []
        """Callbacks for the next flush."""
        self._telling: list[_Waiting] = []
        """Callbacks that a flush has begun for. They wait for the next one, too, if it left acks that they wait for."""
        self._records = 0
        """The number of records of the flush under way that are submitted and not back."""
        self._to_take = 0
        """The number of streams that the unwritten ones of these records are expected to take. They may take more, or
        fewer."""
        self._failed = False
        self._over: ShoalError | None = None
        """Why nothing will be journaled any more: the node has ended."""

    def then(self, tell: Tell, feeds: Collection[Feed] | None = None) -> None:
        """Calls `tell` with None when every ack taken so far of these feeds (None: of all) is durable and in the
        tables; or with the error."""
        self._told.append(_Waiting(tell, self._acks.flushes, feeds))

    @property
    def under_way(self) -> bool:
        return bool(self._telling or self._records or self._acks.flushing)

    def flush(self) -> bool:
        """Begins a flush, or goes on with the one under way, by one record. Returns whether one more record may follow
        at once. Must not be called while a record is applied in part: dispatch hears only afterwards what it does."""
        assert self._commit.whole
        if self._over is not None:
            self._tell(self._over)
            return False
        if not self.under_way:
            if not (self._told or self._acks.waiting):
                return False
            self._begin()
        self._submit_next()
        self._finish_if_done()
        return self._may_submit()

    def _begin(self) -> None:
        self._telling += self._told
        self._told = []
        self._acks.begin_flush()
        self._failed = False

    def _may_submit(self) -> bool:
        """Returns whether there are acks that no submitted record will take. The first record of a flush also clears
        feeds that have nothing to take."""
        if self._over is not None:
            return False
        if not self._records:
            return self._acks.flushing
        return self._acks.remaining > self._to_take and self._records < ACK_RECORDS_PER_TURN

    def _submit_next(self, cost: int = 0) -> None:
        """Submits another record, if one is needed. `cost`: what it will cost at least, as far as this is known."""
        if self._may_submit():
            streams = max(1, min(ACK_COST_PER_RECORD, self._acks.remaining - self._to_take))
            self._submit(streams, max(cost, streams))

    def _submit(self, streams: int, cost: int) -> None:
        """Submits a record of the next acks. `streams`: how many streams the record takes if they cost little; these
        are left for it. `cost`: what the record counts as until it is written."""
        self._records += 1
        self._to_take += streams
        record = _AckRecord(self, streams)
        self._commit.submit(Item(Kind.ACKS, b"", record.applied, record.failed, operations=cost, make=record.make))

    def make(self, item: Item, streams: int) -> tuple[AckBatch, bytes | None]:
        """Takes the acks of a record that is written now. Returns them, and its payload; None: there are none.

        They are taken as late as this. Acks taken earlier would have to be taken again if a bind below the head came
        between and was forgotten (BindBacks); while others bind all the time, that would not end. What they cost is
        known only now: if the record took fewer streams than expected, the next one follows at once.
        """
        batch = self._acks.take(ACK_COST_PER_RECORD)
        self._to_take -= streams
        item.operations = max(1, batch.cost)
        self._submit_next(ACK_COST_PER_RECORD)
        return batch, encode_acks(batch.acks, self._commit.applied_lsn) if batch.acks else None

    def record_applied(self, batch: AckBatch, effects: Effects) -> None:
        """Takes in that a record is in the tables."""
        self._records -= 1
        if effects.acks_skipped:
            self._acks.failed(batch)
            self._failed = True
        else:
            self._acks.applied(batch)
        self._submit_next(ACK_COST_PER_RECORD)
        self._finish_if_done()

    def record_failed(self, batch: AckBatch | None, streams: int, error: ShoalError) -> None:
        """Takes in that a record is not in the journal. `batch` None: it had not taken any acks."""
        self._records -= 1
        if batch is None:
            self._to_take -= streams
        else:
            self._acks.failed(batch)
        if isinstance(error, ResourceExhausted):
            self._failed = True
            self._finish_if_done()
        else:
            self._over = error
            self._tell(error)

    def _finish_if_done(self) -> None:
        """Ends the flush, if all its records are back, and begins the next one if this one left some acks. The next
        flush takes what failed; the callbacks then wait for that one."""
        if self._records or self._acks.flushing:
            return
        telling, self._telling = self._telling, []
        if self._failed:
            flushes = self._acks.flushes
            self._told = [one._replace(before=flushes) for one in (*telling, *self._told)]
            return
        done: list[Tell] = []
        oldest = self._acks.oldest
        for one in telling:
            if one.before < oldest or (one.feeds is not None and one.before < self._acks.oldest_of(one.feeds)):
                done.append(one.tell)
            else:
                self._telling.append(one)
        if oldest < self._acks.flushes:
            self._begin()
            self._submit_next()
        for tell in done:
            tell(None)

    def end(self, error: ShoalError) -> None:
        """Ends flushing: everything that waits for acks, now or later, hears `error`."""
        self._over = error
        self._tell(error)

    def _tell(self, error: ShoalError) -> None:
        """Calls all callbacks: nothing will be journaled any more."""
        telling, self._telling, self._told = [*self._telling, *self._told], [], []
        for one in telling:
            one.tell(error)
