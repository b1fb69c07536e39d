"""The broker's own records: acks gathered, keys trimmed, rows reclaimed, idle producers forgotten; in bounded turns."""

from __future__ import annotations

import asyncio
import logging
import time
from itertools import islice

from shoal_contract.errors import ShoalError
from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.adapters.ack_flush import AckFlush
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.commit_loop import CommitLoop, Item, now_ms
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.reclaim_list import ReclaimList
from shoal_slice_node.core.records import Kind, encode_reclaim, encode_trims
from shoal_slice_node.core.rows.producer_row import decode_producer
from shoal_slice_node.core.rows.small_rows import RECLAIM_PRODUCER
from shoal_slice_node.core.state import State
from shoal_slice_node.core.trimmer import Trimmer
from shoal_slice_node.limits import (
    ACK_FLUSH_MS,
    PRODUCER_IDLE_MS,
    PRODUCERS_PER_TURN,
    RECLAIM_ROWS_PER_TURN,
    TICK_MS,
)

_log = logging.getLogger(__name__)


class Maintenance:
    """Of the leader. Each kind of record has at most one under way."""

    def __init__(
        self,
        commit: CommitLoop,
        state: State,
        acks: AckFlush,
        reclaims: ReclaimList,
        puller: Puller,
        trimmer: Trimmer,
        checkpoints: Checkpoints,
    ) -> None:
        self._commit = commit
        self._acks = acks
        self._reclaims = reclaims
        self._puller = puller
        self._trimmer = trimmer
        self._checkpoints = checkpoints
        self._tables = state.tables
        self._under_way: set[Kind] = set()
        self._producer_position = b""
        self._operations_seen = 0
        self._active_s = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        next_acks = next_producers = 0.0
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            now = time.monotonic()
            if now >= next_acks:
                next_acks = now + ACK_FLUSH_MS / 1000
                self._acks.flush()
            self._puller.expire(now_ms())
            if self._trimmer.pending:
                self._trim(int(now * 1000))
            self._reclaim()
            if now >= next_producers:
                next_producers = now + 1
                self._forget_producers()
            self._rest(now)

    def _submit(self, kind: Kind, payload: bytes, operations: int) -> None:
        def applied(_: Effects) -> None:
            self._under_way.discard(kind)

        def failed(error: ShoalError) -> None:
            self._under_way.discard(kind)
            _failed(error)

        self._under_way.add(kind)
        self._commit.submit(Item(kind, payload, applied, failed, operations=operations))

    def _trim(self, now: int) -> None:
        if Kind.TRIM in self._under_way:
            return
        trims = self._trimmer.turn(now)
        if trims:
            self._submit(Kind.TRIM, encode_trims(trims), len(trims))

    def _reclaim(self) -> None:
        if Kind.RECLAIM in self._under_way:
            return
        keys = self._reclaims.take(RECLAIM_ROWS_PER_TURN)
        if keys:
            self._submit(Kind.RECLAIM, encode_reclaim(keys), len(keys))

    def _forget_producers(self) -> None:
        """A slow walk over the producers; those silent for long are named in a RECLAIM record."""
        oldest = now_ms() - PRODUCER_IDLE_MS
        rows = list(islice(self._tables.producer.scan(start=self._producer_position), PRODUCERS_PER_TURN))
        self._producer_position = rows[-1][0] + b"\x00" if rows else b""
        idle = [
            RECLAIM_PRODUCER + key
            for key, row in rows
            if len(key) == PRODUCER_BYTES and decode_producer(row).time_ms < oldest
        ]
        if idle and Kind.RECLAIM not in self._under_way:
            self._submit(Kind.RECLAIM, encode_reclaim(idle), len(idle))

    def _rest(self, now: float) -> None:
        if self._commit.operations != self._operations_seen:
            self._operations_seen = self._commit.operations
            self._active_s = now
        self._checkpoints.rest(now - self._active_s)


def _failed(error: ShoalError) -> None:
    _log.warning("a maintenance record was not written: %s", error)
