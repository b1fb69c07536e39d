"""Group commit: while one batch is being synced, the next gathers; a record is applied once it is durable, in order.

Items without a payload (attach, pull, describe) take their place among the others, so that a session sees its own
changes. Not here: what records mean (core), when maintenance is due (maintenance.py).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal_contract.errors import ResourceExhausted, ShoalError, Unavailable
from shoal_contract.journal_record import Record, encode_record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.engine import Engine
from shoal_slice_node.limits import BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, LOOP_SLICE_MS, PENDING_BYTES_MAX


class JournalWriter(Protocol):
    def append(self, data: bytes, first_lsn: int, last_lsn: int) -> None:
        """Durable when it returns. Called from a thread. Raises ResourceExhausted (nothing was written), Corrupt."""


@dataclass(slots=True)
class Item:
    """`payload` None: not journaled. Exactly one of `applied` and `failed` is called, from the loop."""

    kind: int
    payload: bytes | None
    applied: Callable[[Effects], None]
    failed: Callable[[ShoalError], None]
    change: wire.Change | None = None
    operations: int = 1


Entry = tuple[Item, Record | None]
JournalThread = Callable[[Callable[[], object]], "asyncio.Future[object]"]
"""Runs work in the one thread that the journal belongs to."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class CommitLoop:
    """`applied_lsn`: everything up to it is durable and in the tables. `operations`, `journal_bytes`: since the start,
    the first with reads. `on_effects` hears of each record, `on_turn`
    after each slice of work. `throttle` may wait before a batch is applied."""

    def __init__(
        self,
        engine: Engine,
        journal: JournalWriter,
        in_journal_thread: JournalThread,
        applied_lsn: int,
        epoch: int,
        on_effects: Callable[[Effects], None],
        on_turn: Callable[[], None],
        throttle: Callable[[], asyncio.Future[None] | None],
    ) -> None:
        self.applied_lsn = applied_lsn
        self.operations = 0
        self.journal_bytes = 0
        self._engine = engine
        self._journal = journal
        self._next_lsn = applied_lsn + 1
        self._epoch = epoch
        self._on_effects = on_effects
        self._on_turn = on_turn
        self._throttle = throttle
        self._pending: deque[Item] = deque()
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._time_ms = 0
        self._in_journal_thread = in_journal_thread
        self._stopped = False

    def submit(self, item: Item) -> None:
        if self._stopped:
            item.failed(Unavailable("the broker is stopping; the outcome is unknown"))
            return
        self._pending.append(item)
        self._pending_bytes += len(item.payload or b"")
        if self._pending_bytes > PENDING_BYTES_MAX:
            self._room.clear()
        self._wake.set()

    async def room(self) -> None:
        """Waits until more may be submitted."""
        await self._room.wait()

    async def run(self) -> None:
        """Until cancelled. Raises Corrupt: the journal failed and nothing more may be acknowledged."""
        written: list[Entry] = []
        try:
            while True:
                if not self._pending and not written:
                    self._wake.clear()
                    await self._wake.wait()
                batch, data = self._gather()
                sync = self._write(batch, data) if data else None
                await self._apply(written)
                written = batch if sync is None else await self._synced(sync, batch)
        finally:
            self._stopped = True

    def _gather(self) -> tuple[list[Entry], list[bytes]]:
        batch: list[Entry] = []
        data: list[bytes] = []
        size = operations = 0
        time_ms = self._time_ms = max(self._time_ms, now_ms())
        pending = self._pending
        while pending and size < BATCH_BYTES_MAX and operations < BATCH_OPERATIONS_MAX:
            item = pending.popleft()
            if item.payload is None:
                batch.append((item, None))
                continue
            record = Record(item.kind, 0, self._next_lsn, self._epoch, time_ms, item.payload)
            self._next_lsn += 1
            data.append(encode_record(item.kind, record.lsn, self._epoch, time_ms, item.payload))
            size += len(item.payload)
            operations += item.operations
            batch.append((item, record))
        self._pending_bytes -= size
        if self._pending_bytes <= PENDING_BYTES_MAX // 2:
            self._room.set()
        return batch, data

    def _write(self, batch: Sequence[Entry], data: Sequence[bytes]) -> asyncio.Future[object]:
        first = self._next_lsn - len(data)
        last = self._next_lsn - 1
        return self._in_journal_thread(lambda: self._journal.append(b"".join(data), first, last))

    async def _synced(self, sync: asyncio.Future[object], batch: list[Entry]) -> list[Entry]:
        """What may be applied: all, or, where the disk was full, what needs no disk."""
        try:
            await sync
        except ResourceExhausted as error:
            refused = [item for item, record in batch if record is not None]
            self._next_lsn -= len(refused)
            for item in refused:
                item.failed(error)
            return [entry for entry in batch if entry[1] is None]
        except ShoalError as error:
            for item, _ in batch:
                item.failed(error)
            raise
        return batch

    async def _apply(self, written: Sequence[Entry]) -> None:
        if not written:
            return
        waiting = self._throttle()
        if waiting is not None:
            await waiting
        slice_end = time.perf_counter() + LOOP_SLICE_MS / 1000
        for item, record in written:
            self.operations += item.operations
            if record is None:
                item.applied(_NOTHING)
            else:
                effects = self._engine.apply(record, item.change)
                self.applied_lsn = record.lsn
                self.journal_bytes += len(record.payload)
                self._on_effects(effects)
                item.applied(effects)
            if time.perf_counter() > slice_end:
                self._on_turn()
                await asyncio.sleep(0)
                slice_end = time.perf_counter() + LOOP_SLICE_MS / 1000
        self._on_turn()


_NOTHING = Effects()
