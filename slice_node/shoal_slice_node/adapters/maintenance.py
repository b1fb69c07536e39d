"""The broker's own records: acks gathered, keys trimmed, rows reclaimed, idle producers forgotten; in bounded turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from shoal_contract.errors import ShoalError
from shoal_slice_node.adapters.ack_flush import AckFlush
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.commit_loop import CommitLoop, Item
from shoal_slice_node.adapters.limits import ACK_FLUSH_MS, PRODUCER_IDLE_MS, TICK_MS
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.idle_producers import IdleProducers
from shoal_slice_node.core.key_walk import KeyWalk
from shoal_slice_node.core.limits import LEASES_PER_TURN, RECLAIM_COST_PER_TURN
from shoal_slice_node.core.reclaim_list import ReclaimList
from shoal_slice_node.core.records import Kind, encode_reclaim, encode_trims
from shoal_slice_node.core.state import State
from shoal_slice_node.core.trimmer import Trimmer

_log = logging.getLogger(__name__)


class Maintenance:
    """Of the leader. Each kind of record has at most one under way. What a record could not do, the disk being full, is
    looked for again."""

    def __init__(
        self,
        commit: CommitLoop,
        state: State,
        acks: AckFlush,
        reclaims: ReclaimList,
        puller: Puller,
        trimmer: Trimmer,
        checkpoints: Checkpoints,
        on_turn: Callable[[], None],
    ) -> None:
        self._commit = commit
        self._acks = acks
        self._reclaims = reclaims
        self._puller = puller
        self._trimmer = trimmer
        self._checkpoints = checkpoints
        self._on_turn = on_turn
        self._keys = KeyWalk(state)
        self._producers = IdleProducers(state, PRODUCER_IDLE_MS)
        self._under_way: set[str] = set()
        self._operations_seen = 0
        self._active_ms = steady_ms()

    async def run(self) -> None:
        """Until cancelled."""
        next_acks_ms = 0
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            await self._commit.between_records.wait()
            now_ms = steady_ms()
            if self._acks.under_way or now_ms >= next_acks_ms:
                next_acks_ms = now_ms + ACK_FLUSH_MS
                while self._acks.flush():
                    await asyncio.sleep(0)
                    await self._commit.between_records.wait()
            for _ in range(LEASES_PER_TURN):
                if not self._puller.expire(now_ms):
                    break
            self._trimmer.moved(self._keys.turn(), now_ms)
            if self._trimmer.pending:
                self._trim(now_ms)
            self._reclaim()
            self._forget_producers(now_ms)
            self._rest(now_ms)
            self._on_turn()  # Leases that ended, a delta that grew old: on a silent node nothing else looks.

    def _submit(self, what: str, kind: Kind, payload: bytes, operations: int, again: Callable[[], None]) -> None:
        """`again`: what to do if it could not be written."""

        def applied(_: Effects) -> None:
            self._under_way.discard(what)

        def failed(error: ShoalError) -> None:
            self._under_way.discard(what)
            _log.info("a %s record was not written: %s", what, error)
            again()

        self._under_way.add(what)
        self._commit.submit(Item(kind, payload, applied, failed, operations=operations))

    def _trim(self, now_ms: int) -> None:
        if "trim" in self._under_way:
            return
        trims = self._trimmer.turn(now_ms)
        if trims:
            keys = [trim.key_id for trim in trims]
            payload = encode_trims(trims)
            self._submit("trim", Kind.TRIM, payload, len(trims), lambda: self._trimmer.moved(keys, steady_ms()))

    def _reclaim(self) -> None:
        if "reclaim" in self._under_way:
            return
        keys = self._reclaims.take(RECLAIM_COST_PER_TURN)
        if keys:
            self._submit_reclaim("reclaim", keys, lambda: self._reclaims.note(keys))

    def _submit_reclaim(self, what: str, keys: Sequence[bytes], again: Callable[[], None]) -> None:
        self._submit(what, Kind.RECLAIM, encode_reclaim(keys), RECLAIM_COST_PER_TURN, again)

    def _forget_producers(self, now_ms: int) -> None:
        """A walk over the producers finds those that are silent for long."""
        if "producers" in self._under_way:
            return
        idle = self._producers.turn(now_ms)
        if idle:
            self._submit_reclaim("producers", idle, lambda: None)  # The walk comes by again.

    def _rest(self, now_ms: int) -> None:
        if self._commit.operations != self._operations_seen:
            self._operations_seen = self._commit.operations
            self._active_ms = now_ms
        self._checkpoints.rest((now_ms - self._active_ms) / 1000)
