"""Makes the node's own records, in bounded turns: gathers acks, trims keys, reclaims rows, forgets idle producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from shoal_contract.errors import ShoalError
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind, encode_reclaim, encode_trims
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.background.idle_producers import IdleProducers
from shoal_slice_node.core.background.key_walk import KeyWalk
from shoal_slice_node.core.background.reclaim_list import ReclaimList
from shoal_slice_node.core.background.trimmer import Trimmer
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.limits import ACK_FLUSH_MS, LEASES_PER_TURN, PRODUCER_IDLE_MS, RECLAIM_COST_PER_TURN
from shoal_slice_node.core.node.ack_flush import AckFlush
from shoal_slice_node.core.node.commit import Commit, Item

_log = logging.getLogger(__name__)


class Maintenance:
    """Looks for the leader's own work. Each kind of record has at most one under way. What a record could not do,
    because the disk was full, is looked for again. `now_ms`: the time that was told last, of a clock that never goes
    back."""

    def __init__(
        self,
        commit: Commit,
        state: State,
        acks: AckFlush,
        reclaims: ReclaimList,
        puller: Puller,
        trimmer: Trimmer,
        now_ms: int,
    ) -> None:
        self.now_ms = now_ms
        self._commit = commit
        self._acks = acks
        self._reclaims = reclaims
        self._puller = puller
        self._trimmer = trimmer
        self._keys = KeyWalk(state)
        self._producers = IdleProducers(state, PRODUCER_IDLE_MS)
        self._under_way: set[str] = set()
        self._next_acks_ms = 0
        self._flushing = False

    def tick(self, now_ms: int) -> None:
        """Looks for work. Must be called about every TICK_MS, while no record is applied in part."""
        self.now_ms = now_ms
        if self._acks.under_way or now_ms >= self._next_acks_ms:
            self._next_acks_ms = now_ms + ACK_FLUSH_MS
            self._flushing = True
        self._end_leases()
        self._trimmer.moved(self._keys.turn(), now_ms)
        if self._trimmer.pending:
            self._trim()
        self._reclaim()
        self._forget_producers()

    @property
    def has_turns(self) -> bool:
        """Returns whether `turn` has something to do."""
        return self._flushing

    def turn(self) -> None:
        """Begins an ack flush that is due, or goes on with it, by one record."""
        self._flushing = self._acks.flush()

    def _end_leases(self) -> None:
        for _ in range(LEASES_PER_TURN):
            if not self._puller.expire(self.now_ms):
                break

    def _submit(self, what: str, kind: Kind, payload: bytes, operations: int, again: Callable[[], None]) -> None:
        """Submits a record. `again`: what to do if it could not be written."""

        def applied(_: Effects) -> None:
            self._under_way.discard(what)

        def failed(error: ShoalError) -> None:
            self._under_way.discard(what)
            _log.info("a record of the node's own (%s) was not written: %s. It is made again", what, error)
            again()

        self._under_way.add(what)
        self._commit.submit(Item(kind, payload, applied, failed, operations=operations))

    def _trim(self) -> None:
        if "trim" in self._under_way:
            return
        trims = self._trimmer.turn(self.now_ms)
        if trims:
            keys = [trim.key_id for trim in trims]
            payload = encode_trims(trims)
            self._submit("trim", Kind.TRIM, payload, len(trims), lambda: self._trimmer.moved(keys, self.now_ms))

    def _reclaim(self) -> None:
        if "reclaim" in self._under_way:
            return
        keys = self._reclaims.take(RECLAIM_COST_PER_TURN)
        if keys:
            self._submit_reclaim("reclaim", keys, lambda: self._reclaims.note(keys))

    def _submit_reclaim(self, what: str, keys: Sequence[bytes], again: Callable[[], None]) -> None:
        self._submit(what, Kind.RECLAIM, encode_reclaim(keys), RECLAIM_COST_PER_TURN, again)

    def _forget_producers(self) -> None:
        """Forgets producers that have been silent for long; a walk over the producers finds them."""
        if "producers" in self._under_way:
            return
        idle = self._producers.turn(self.now_ms)
        if idle:
            self._submit_reclaim("producers", idle, lambda: None)  # The walk finds them again.
