"""Does the leader's own work in bounded turns: flushes acks, tells leases and delays the time, submits what
jobs propose."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shoal_contract.errors import ShoalError
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.background.job import Job
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.limits import ACK_FLUSH_MS
from shoal_slice_node.core.node.ack_flush import AckFlush
from shoal_slice_node.core.node.commit import Commit, Item

_log = logging.getLogger(__name__)


_CAN_WAIT = ("trim", "reclaim")


class Maintenance:
    """Does the leader's own work. Each job has at most one record under way. What a record could not do, because the
    disk was full, is looked for again. `now_ms`: the time that was told last, of a clock that never goes back."""

    def __init__(
        self, commit: Commit, acks: AckFlush, dispatcher: Dispatcher, jobs: Sequence[Job], now_ms: int
    ) -> None:
        self.now_ms = now_ms
        self.holds_back: Callable[[], bool] = lambda: False
        """Says whether trims and reclaims are to wait, as memory would not hold their rows."""
        self._commit = commit
        self._acks = acks
        self._dispatcher = dispatcher
        self._jobs = {job.name: job for job in jobs}
        self._under_way: set[str] = set()
        self._refused: set[str] = set()
        """Jobs whose last record was not written. That is logged once: they try again with each tick."""
        self._next_acks_ms = 0
        self._flushing = False

    def tick(self, now_ms: int) -> None:
        """Looks for work. Must be called about every TICK_MS, while no record is applied in part."""
        self.now_ms = now_ms
        if self._acks.under_way or now_ms >= self._next_acks_ms:
            self._next_acks_ms = now_ms + ACK_FLUSH_MS
            self._flushing = True
        self._dispatcher.tick(now_ms)
        for name in self._jobs:
            self.do(name)

    @property
    def has_turns(self) -> bool:
        """Returns whether `turn` has something to do."""
        return self._flushing

    def turn(self) -> None:
        """Begins an ack flush that is due, or goes on with it, by one record."""
        self._flushing = self._acks.flush()

    def do(self, name: str) -> None:
        """Gives the job of this name a turn, unless its last record is under way, or it is to wait."""
        if name in self._under_way or (name in _CAN_WAIT and self.holds_back()):
            return
        job = self._jobs[name]
        proposal = job.turn(self.now_ms)
        if proposal is None:
            return

        def applied(_: Effects) -> None:
            self._under_way.discard(name)
            self._refused.discard(name)

        def failed(error: ShoalError) -> None:
            self._under_way.discard(name)
            if name not in self._refused:
                self._refused.add(name)
                _log.info("a record of the node's own (%s) was not written: %s. It is made again", name, error)
            job.refused(self.now_ms)

        self._under_way.add(name)
        kind, payload, operations, make = proposal
        item = Item(kind, payload, applied, failed, operations=operations)
        if make is not None:
            item.make = lambda _: make()
        self._commit.submit(item)
