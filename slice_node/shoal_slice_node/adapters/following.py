"""Follows: applies what the journal has and the tables have not, and lets checkpoints begin meanwhile.

Today a node's journal is all that it follows; records that a leader sends will be appended and applied here too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import cast

from shoal_contract.journal_record import Record
from shoal_slice_node.adapters.limits import LOOP_SLICE_MS, TICK_MS
from shoal_slice_node.adapters.node_data import NodeData

_log = logging.getLogger(__name__)


async def catch_up(data: NodeData) -> int:
    """Applies everything that the journal has. Returns how many records that were. It may be cancelled: each record is
    applied as a whole. Called when nothing is being appended. Raises Corrupt: the journal failed, or a record cannot be
    applied.

    After a leader these are at most the two batches that it had written and not applied."""
    first_lsn = data.state.lsn + 1

    def not_applied() -> list[Record]:
        if data.journal.failed is not None:
            raise data.journal.failed  # What is on the disk is known only after a restart.
        return list(data.journal.records(first_lsn))

    records = cast(list[Record], await data.in_journal_thread(not_applied))
    turn_began = time.perf_counter()
    for record in records:
        waiting = data.checkpoints.throttle()
        if waiting is not None:
            await waiting
        data.replica.apply(record)
        if time.perf_counter() - turn_began > LOOP_SLICE_MS / 1000:
            await asyncio.sleep(0)
            turn_began = time.perf_counter()
    if records:
        _log.info("%d records that were in the journal are applied, up to LSN %d", len(records), data.state.lsn)
    return len(records)


async def checkpoint_when_due(data: NodeData) -> None:
    """Lets checkpoints begin as they are due, until it is cancelled. A leader does so itself."""
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        data.checkpoints.consider()
