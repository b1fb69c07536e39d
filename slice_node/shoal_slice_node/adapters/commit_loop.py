"""Group commit: while one batch is being synced, the next gathers; a record is applied once it is durable, in order.

Sources (sessions, connections with unary calls, the node itself) are served in turn. Items without a payload (attach,
pull, describe) take their place among the others, so that a session sees its own changes.
Not here: what records mean (core), when maintenance is due (maintenance.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from shoal_contract.errors import Fenced, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.journal_record import Record, encode_record
from shoal_slice_node.adapters.clock import now_ms
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import (
    APPLIED_WHOLE_MAX,
    BATCH_BYTES_MAX,
    BATCH_OPERATIONS_MAX,
    LOOP_SLICE_MS,
    OPERATION_US,
    PENDING_BYTES_DEFAULT,
    SOURCE_PENDING_BYTES_MIN,
)
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.engine import Engine
from shoal_slice_node.core.fair_queue import FairQueue
from shoal_slice_node.core.frames import Checked
from shoal_slice_node.core.limits import FAIR_BYTES_PER_OPERATION
from shoal_slice_node.core.prices import GrowingQueues, price
from shoal_slice_node.core.turns import finish

_log = logging.getLogger(__name__)

NODE: Hashable = "node"
"""The source of the node's own items."""


class JournalWriter(Protocol):
    def append(self, data: bytes, first_lsn: int, last_lsn: int) -> None:
        """Durable when it returns. Called from a thread. Raises ResourceExhausted (nothing was written), Corrupt."""


@dataclass(slots=True)
class Item:
    """`payload` None: not journaled. Exactly one of `applied` and `failed` is called, from the loop. `large_bytes`:
    what it has of the room of large frames."""

    kind: int
    payload: bytes | None
    applied: Callable[[Effects], None]
    failed: Callable[[ShoalError], None]
    checked: Checked | None = None
    operations: int = 1
    """What applying it may take: as far as that is known while it waits, anew when it is written."""
    large_bytes: int = 0
    make: Callable[[], bytes | None] | None = None
    """What makes the payload, as late as can be: when the record is written. None: nothing is left to write."""


Entry = tuple[Item, Record | None]
JournalThread = Callable[[Callable[[], object]], "asyncio.Future[object]"]
"""Runs work in the one thread that the journal belongs to."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the loop asks and tells. `on_effects` hears of each record, `on_turn` after each slice of work. `throttle`
    may wait before a batch is applied. `may_answer`: False once the lease may be over. `on_full`: the journal refused a
    batch for want of space (True), or took one again (False)."""

    on_effects: Callable[[Effects], None]
    on_turn: Callable[[], None]
    throttle: Callable[[], asyncio.Future[None] | None]
    may_answer: Callable[[], bool] = lambda: True
    on_full: Callable[[bool], None] = lambda full: None


class WholeRecords(asyncio.Event):
    """Set while no record is applied in part. Who waited finds it so."""

    async def wait(self) -> Literal[True]:
        while not self.is_set():  # The next record may have begun before who waits has its turn.
            await super().wait()
        return True


class CommitLoop:
    """`applied_lsn`: everything up to it is durable and in the tables. `operations`, `journal_bytes`: since the start,
    the first with reads."""

    def __init__(
        self,
        engine: Engine,
        journal: JournalWriter,
        in_journal_thread: JournalThread,
        applied_lsn: int,
        epoch: int,
        hooks: Hooks,
        pending_bytes_max: int = PENDING_BYTES_DEFAULT,
        steps: StepWatch | None = None,
    ) -> None:
        self._pending_bytes_max = pending_bytes_max
        self.applied_lsn = applied_lsn
        self.operations = 0
        self.journal_bytes = 0
        self._engine = engine
        self._journal = journal
        self._next_lsn = applied_lsn + 1
        self._epoch = epoch
        self._hooks = hooks
        self._steps = steps or StepWatch()
        self._pending: FairQueue[Item] = FairQueue(NODE)
        self._growing = GrowingQueues()
        self._wake = asyncio.Event()
        self._waiting_for_room: dict[Hashable, asyncio.Event] = {}
        self.large_frames = FrameRoom(pending_bytes_max // 2)
        self._time_ms = 0
        self._in_journal_thread = in_journal_thread
        self._taken: deque[Item] = deque()
        """Out of `_pending` and not answered: those that are written, then those that are being written."""
        self._stopped = Unavailable("the slice is stopping; the outcome is unknown", subject="slice")
        self._failure: ShoalError | None = None
        self.between_records = WholeRecords()
        """Not set while a record is applied in part: nobody but the loop may look at the tables, or at dispatch."""
        self.between_records.set()
        self._afterwards: list[Callable[[], None]] = []
        self._had_rest = False
        """The record that was applied last took several steps: who waited for it to be whole has a turn now."""

    def between(self, work: Callable[[], None]) -> None:
        """Does a small piece of work now, or when the record that is being applied is whole."""
        if self.between_records.is_set():
            work()
        else:
            self._afterwards.append(work)

    @property
    def pending_bytes(self) -> int:
        return self._pending.bytes

    def submit(self, item: Item, source: Hashable = NODE) -> None:
        if self._failure is not None:
            self._let_go(item)
            item.failed(self._failure)
            return
        self._price(item)
        size_bytes = len(item.payload or b"")
        self._pending.put(source, item, max(item.operations, size_bytes // FAIR_BYTES_PER_OPERATION), size_bytes)
        self._wake.set()

    def _price(self, item: Item) -> None:
        """Looks up what a purge or a drop may take. Also while a record is applied in part: it reads single rows."""
        if item.checked is not None and item.checked.ends:
            item.operations = price(self._engine.state.tables, item.checked, self._growing)

    async def room(self, source: Hashable) -> None:
        """Waits until this source may submit more. Only a source that has much here waits."""
        while not self._has_room(source):
            await self._waiting_for_room.setdefault(source, asyncio.Event()).wait()

    def _has_room(self, source: Hashable) -> bool:
        """A source may fill half of what is free: the more is pending, the less of it may be its own. A source that
        waits has something here, so that the loop will look at it again."""
        own = self._pending.bytes_of(source)
        free = max(0, self._pending_bytes_max - self._pending.bytes)
        return own <= max(SOURCE_PENDING_BYTES_MIN, free // 2) or self._failure is not None

    async def run(self) -> None:
        """Until cancelled. Raises Corrupt: the journal failed, or a record cannot be applied; Fenced: the lease may be
        over. Nothing more may be acknowledged then."""
        written: list[Entry] = []
        sync: asyncio.Future[object] | None = None
        try:
            while True:
                if not self._pending and not written:
                    self._wake.clear()
                    await self._wake.wait()
                batch, data = self._gather()
                sync = self._write(data) if data else None
                await self._apply(written)
                written = batch if sync is None else await self._synced(sync, batch)
        except ShoalError as error:
            self._end(error)
            raise
        finally:
            self._end(self._stopped)
            if sync is not None:
                await asyncio.gather(sync, return_exceptions=True)

    def _end(self, error: ShoalError) -> None:
        """Whatever is not answered yet never will be; nor what comes after."""
        self._failure = self._stopped
        items = [*self._taken, *self._pending.clear()]
        self._taken.clear()
        for item in items:
            self._let_go(item)
            item.failed(error)
        for waiting in self._waiting_for_room.values():
            waiting.set()
        self.large_frames.close(self._stopped)

    def _gather(self) -> tuple[list[Entry], list[bytes]]:
        batch: list[Entry] = []
        data: list[bytes] = []
        size = operations = 0
        time_ms = self._time_ms = max(self._time_ms, now_ms())
        pending, taken = self._pending, set()
        self._growing.begin_batch()
        while pending and size < BATCH_BYTES_MAX and operations < BATCH_OPERATIONS_MAX:
            source, item = pending.take()
            taken.add(source)
            self._taken.append(item)
            self._let_go(item)
            expected = item.operations
            if item.make is not None:
                item.payload = item.make()
            self._price(item)
            pending.charge(source, item.operations - expected)
            if item.checked is not None:
                self._growing.note(item.checked)
            if item.payload is None:
                batch.append((item, None))
                continue
            record = Record(item.kind, 0, self._next_lsn, self._epoch, time_ms, item.payload)
            self._next_lsn += 1
            data.append(encode_record(item.kind, record.lsn, self._epoch, time_ms, item.payload))
            size += len(item.payload)
            operations += item.operations
            batch.append((item, record))
        if self._waiting_for_room:
            for source in taken & self._waiting_for_room.keys():
                if self._has_room(source):
                    self._waiting_for_room.pop(source).set()
        return batch, data

    def _let_go(self, item: Item) -> None:
        if item.large_bytes:
            self.large_frames.give(item.large_bytes)
            item.large_bytes = 0

    def _write(self, data: Sequence[bytes]) -> asyncio.Future[object]:
        first = self._next_lsn - len(data)
        last = self._next_lsn - 1
        return self._in_journal_thread(lambda: self._journal.append(b"".join(data), first, last))

    async def _synced(self, sync: asyncio.Future[object], batch: list[Entry]) -> list[Entry]:
        """What may be applied: all, or, where the disk was full, what needs no disk."""
        try:
            await sync
        except ResourceExhausted as error:
            self._hooks.on_full(True)
            refused = [item for item, record in batch if record is not None]
            self._next_lsn -= len(refused)
            reads = [entry for entry in batch if entry[1] is None]
            self._taken = deque(item for item, _ in reads)
            for item in refused:
                item.failed(error)
            return reads
        self._hooks.on_full(False)
        return batch

    async def _apply(self, written: Sequence[Entry]) -> None:
        """In slices of about LOOP_SLICE_MS: a record that would make one longer begins the next."""
        if not written:
            return
        waiting = self._hooks.throttle()
        if waiting is not None:
            await waiting
        began = time.perf_counter()
        for item, record in written:
            spent_ms = (time.perf_counter() - began) * 1000
            if spent_ms > 0.5 and spent_ms + item.operations * OPERATION_US / 1000 > LOOP_SLICE_MS:
                began = await self._pause(began)
            self._check_fence()
            self.operations += item.operations
            effects = _NOTHING
            if record is not None:
                effects, began = await self._apply_record(item, record, began)
            self._taken.popleft()
            try:
                item.applied(effects)
            except Exception:
                _log.exception("what waited for record %s failed", None if record is None else record.lsn)
            if self._had_rest:
                self._had_rest = False
                began = await self._pause(began)
        self._hooks.on_turn()
        self._steps.done(began)

    async def _pause(self, began: float) -> float:
        """Between two records; when the next step begins."""
        self._hooks.on_turn()
        self._steps.done(began)
        await asyncio.sleep(0)
        return time.perf_counter()

    def _check_fence(self) -> None:
        """Before anything is answered. Raises Fenced."""
        if not self._hooks.may_answer():
            raise Fenced(
                "this node's lease may be over: it answers nothing more, the outcome is unknown", subject="lease"
            )

    async def _apply_record(self, item: Item, record: Record, began: float) -> tuple[Effects, float]:
        """In steps, if it is a large one; what it did, and when the last step began. Nothing else happens to tables and
        dispatch meanwhile; nor ever again, if it fails in the middle."""
        work = self._engine.in_steps(record, item.checked)
        effects = None
        while effects is None:
            try:
                next(work)
            except StopIteration as stop:
                effects = stop.value
            except ShoalError:
                self.between_records.clear()  # For good: nobody may save what it left.
                raise
            if time.perf_counter() - began > LOOP_SLICE_MS / 2000 and item.operations >= APPLIED_WHOLE_MAX:
                self.between_records.clear()
                self._had_rest = True
                self._steps.done(began)
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # Who stops the loop gets a whole record all the same.
                    finish(work)
                    self._count(record)
                    self._go_on()
                    raise
                began = time.perf_counter()
        self._count(record)
        self._hooks.on_effects(effects)
        self._go_on()
        return effects, began

    def _count(self, record: Record) -> None:
        """It is in the tables."""
        self.applied_lsn = record.lsn
        self.journal_bytes += len(record.payload)

    def _go_on(self) -> None:
        """Others may look again."""
        self.between_records.set()
        afterwards, self._afterwards = self._afterwards, []
        for piece in afterwards:
            piece()


_NOTHING = Effects()
