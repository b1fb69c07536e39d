"""Acks gather in memory for ACK_FLUSH_MS; then one record takes them all, and who asked to know is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from shoal_contract.errors import ShoalError
from shoal_slice_node.adapters.commit_loop import CommitLoop, Item
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.records import Acked, Kind, encode_acks
from shoal_slice_node.limits import ACKS_PER_RECORD_MAX

Tell = Callable[[ShoalError | None], None]

_log = logging.getLogger(__name__)


class AckFlush:
    """`then` callbacks are bounded by the sessions' frames under way. What a full disk refused is flushed again."""

    def __init__(self, commit: CommitLoop, dispatcher: Dispatcher) -> None:
        self._commit = commit
        self._dispatcher = dispatcher
        self._told: list[Tell] = []
        self._failed: ShoalError | None = None

    def then(self, tell: Tell) -> None:
        """Calls `tell` once every ack taken so far is durable and in the tables, with None; or with the error."""
        self._told.append(tell)

    async def settled(self) -> ShoalError | None:
        """Flushes now, and returns when that is done; what failed, if it did."""
        done: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()
        self.then(lambda error: None if done.done() else done.set_result(error))
        self.flush()
        return await done

    def flush(self) -> None:
        while self._dispatcher.unflushed:
            acks = self._dispatcher.take_acks(ACKS_PER_RECORD_MAX)
            queue_ids = {ack.queue_id for ack in acks}

            def applied(_: Effects, queue_ids: set[bytes] = queue_ids) -> None:
                self._dispatcher.acks_applied(queue_ids)

            def failed(error: ShoalError, acks: list[Acked] = acks) -> None:
                _log.warning("acks were not journaled: %s", error)
                self._failed = error
                self._dispatcher.acks_failed(acks)

            if acks:
                self._commit.submit(Item(Kind.ACKS, encode_acks(acks), applied, failed, operations=len(acks)))
        if self._told:
            told, self._told = self._told, []
            self._commit.submit(Item(0, None, lambda _: self._tell(told, None), lambda error: self._tell(told, error)))

    def _tell(self, told: list[Tell], error: ShoalError | None) -> None:
        """Items come back in order: a failure since the last time was of these acks."""
        error, self._failed = error or self._failed, None
        for tell in told:
            tell(error)
