"""Follows: applies what the journal has and the tables have not, and lets checkpoints begin meanwhile.

Today a node's journal is all that it follows; records that a leader sends will be appended and applied here too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import cast

from shoal_contract.journal_record import Record
from shoal_slice_node.adapters.limits import FOLLOWED_BYTES, FOLLOWED_RECORDS, LOOP_SLICE_MS, TICK_MS
from shoal_slice_node.adapters.node_data import NodeData
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.turns import Work, finish

_log = logging.getLogger(__name__)


async def catch_up(data: NodeData) -> int:
    """Applies everything that the journal has, in slices of about LOOP_SLICE_MS, and begins checkpoints between two
    records as they are due. Returns how many records that were. If it is cancelled, it finishes the record that it
    applies. Called when nothing is being appended. Raises Corrupt: the journal failed, or a record cannot be applied.

    After a leader these are at most the two batches that it had written and not applied."""
    pieces = _pieces(data, data.state.lsn + 1)
    applied = 0
    turn_began = time.perf_counter()
    while records := cast(list[Record], await data.in_journal_thread(lambda: next(pieces, []))):
        for record in records:
            data.checkpoints.consider()
            waiting = data.checkpoints.throttle()
            if waiting is not None:
                await waiting
            turn_began = await _apply(data.replica.in_steps(record), turn_began)
        applied += len(records)
    if applied:
        _log.info("%d records that were in the journal are applied, up to LSN %d", applied, data.state.lsn)
    return applied


def _pieces(data: NodeData, first_lsn: int) -> Iterator[list[Record]]:
    """Yields the journal's records from `first_lsn` on, some at a time. For the journal's thread."""
    if data.journal.failed is not None:
        raise data.journal.failed  # What is on the disk is known only after a restart.
    records: list[Record] = []
    size_bytes = 0
    for record in data.journal.records(first_lsn):
        records.append(record)
        size_bytes += len(record.payload)
        if size_bytes >= FOLLOWED_BYTES or len(records) >= FOLLOWED_RECORDS:
            yield records
            records, size_bytes = [], 0
    if records:
        yield records


async def _apply(work: Work[Effects], turn_began: float) -> float:
    """Applies a record in steps, and lets other tasks run when a slice of time is over. Returns when the slice under
    way began, as time.perf_counter()."""
    try:
        for _ in work:
            turn_began = await _rest(turn_began)
    except asyncio.CancelledError:
        finish(work)
        raise
    return await _rest(turn_began)


async def _rest(turn_began: float) -> float:
    if time.perf_counter() - turn_began <= LOOP_SLICE_MS / 1000:
        return turn_began
    await asyncio.sleep(0)
    return time.perf_counter()


async def checkpoint_when_due(data: NodeData) -> None:
    """Lets checkpoints begin as they are due, until it is cancelled. A leader and `catch_up` do so themselves."""
    while True:
        await asyncio.sleep(TICK_MS / 1000)
        data.checkpoints.consider()
