"""Drives the node's commits: writes batches in the journal's thread, and applies durable records in slices of time.

While one batch is being synced, the next one gathers. Not here: what a batch contains and how records are applied
(core/node/commit).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

from shoal_contract.errors import Corrupt, ResourceExhausted, ShoalError, Unavailable
from shoal_slice_node.adapters.clock import wall_ms
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import (
    LOOP_SLICE_MS,
    OPERATION_US,
    PENDING_BYTES_DEFAULT,
    SOURCE_PENDING_BYTES_MIN,
    TURNS_BETWEEN_SLICES,
)
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.core.node.commit import NODE, Batch, Commit, Item


class JournalWriter(Protocol):
    def append(self, data: bytes, first_lsn: int, last_lsn: int, frees: bool = False) -> None:
        """Appends records, which are durable when this returns. `frees`: they may use what is kept for such as free
        room. Called from a thread. Raises ResourceExhausted (nothing was written), Corrupt."""


JournalThread = Callable[[Callable[[], object]], "asyncio.Future[object]"]
"""Runs work in the only thread that may use the journal."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Holds the functions that the loop calls. `on_turn`: after each slice of work. `throttle`: before a batch is
    applied; the loop waits for the future that it returns. `check_may_answer`: before anything is answered; raises
    Fenced once the lease may be over. `on_full`: when the journal refused a batch for lack of room; returns the error
    for those that sent it. `on_taken`: when it took one. `short`: why only what frees room is taken, or None."""

    on_turn: Callable[[], None]
    throttle: Callable[[], asyncio.Future[None] | None]
    check_may_answer: Callable[[], None] = lambda: None
    on_full: Callable[[ResourceExhausted], ResourceExhausted] = lambda error: error
    on_taken: Callable[[], None] = lambda: None
    short: Callable[[], ShoalError | None] = lambda: None


class WholeRecords(asyncio.Event):
    """Is set while no record is applied in part, and is sure to be set when `wait` returns."""

    async def wait(self) -> Literal[True]:
        while not self.is_set():  # The next record may have begun before the waiting task has its turn.
            await super().wait()
        return True


class CommitLoop:
    """Runs the commits of one node. `commit`: the node's. `large_frames`: bounds large frames that are read and not yet
    written."""

    def __init__(
        self,
        commit: Commit,
        large_frames: FrameRoom,
        journal: JournalWriter,
        in_journal_thread: JournalThread,
        hooks: Hooks,
        pending_bytes_max: int = PENDING_BYTES_DEFAULT,
        steps: StepWatch | None = None,
    ) -> None:
        self.commit = commit
        self.large_frames = large_frames
        self._pending_bytes_max = pending_bytes_max
        self._journal = journal
        self._hooks = hooks
        self._steps = steps or StepWatch()
        self._wake = asyncio.Event()
        self._waiting_for_room: dict[Hashable, asyncio.Event] = {}
        self._in_journal_thread = in_journal_thread
        self._stopped = Unavailable("the slice is stopping; the outcome is unknown", subject="slice")
        self.between_records = WholeRecords()
        """Is not set while a record is applied in part: then only this loop may look at the tables or at dispatch."""
        self.between_records.set()
        self._afterwards: deque[Callable[[], None]] = deque()

    def between(self, work: Callable[[], None]) -> None:
        """Does a small piece of work now or, if a record is applied in part, when all of that record is applied."""
        if self.between_records.is_set():
            began = time.perf_counter()
            work()
            self._steps.done(began)
        else:
            self._afterwards.append(work)

    def submit(self, item: Item, source: Hashable = NODE) -> None:
        self.commit.submit(item, source)
        self._wake.set()

    def wake(self) -> None:
        """Wakes the loop if something was submitted to the node directly."""
        if self.commit:
            self._wake.set()

    async def room(self, source: Hashable) -> None:
        """Waits until this source may submit more. Only a source with much pending waits."""
        while not self._has_room(source):
            await self._waiting_for_room.setdefault(source, asyncio.Event()).wait()

    def _has_room(self, source: Hashable) -> bool:
        """Returns whether this source may submit more: it may fill half of what is free, so its bound shrinks as more
        is pending. A source that waits has something pending, so the loop will check it again."""
        own = self.commit.pending_bytes_of(source)
        free = max(0, self._pending_bytes_max - self.commit.pending_bytes)
        return own <= max(SOURCE_PENDING_BYTES_MIN, free // 2) or self.commit.ended

    async def run(self) -> None:
        """Runs until it is cancelled. Raises Corrupt if the journal failed or a record cannot be applied, Fenced if the
        lease may be over. Nothing more may be acknowledged then."""
        sync: asyncio.Future[object] | None = None
        commit = self.commit
        try:
            while True:
                if not commit and not commit.to_apply:
                    self._wake.clear()
                    await self._wake.wait()
                batch = commit.gather(wall_ms(), short=self._hooks.short())
                self._make_room(batch)
                sync = self._write(batch) if batch.data or batch.held else None
                await self._apply()
                await self._synced(sync, bool(batch.data))
        except Corrupt as error:
            self._end(Unavailable(f"the slice stops, and the outcome is unknown: {error.message}", subject="slice"))
            raise
        except ShoalError as error:
            self._end(error)
            raise
        finally:
            self._end(self._stopped)
            if sync is not None:
                await _ended(sync)

    def _end(self, error: ShoalError) -> None:
        """Ends the commits: pending items fail with `error`, later ones with the error of a stopped slice."""
        self.commit.end(error, self._stopped)
        for waiting in self._waiting_for_room.values():
            waiting.set()
        self.large_frames.close(self._stopped)

    def _make_room(self, batch: Batch) -> None:
        if self._waiting_for_room:
            for source in batch.sources & self._waiting_for_room.keys():
                if self._has_room(source):
                    self._waiting_for_room.pop(source).set()

    def _write(self, batch: Batch) -> asyncio.Future[object]:
        """Writes a batch in the journal's thread. One that has only items to be refused has its turn there, too, so
        that clients that send again at once do not keep the loop busy."""
        data, first_lsn, last_lsn, frees = batch.data, batch.first_lsn, batch.last_lsn, batch.short is not None
        return self._in_journal_thread(lambda: self._journal.append(data, first_lsn, last_lsn, frees) if data else None)

    async def _synced(self, sync: asyncio.Future[object] | None, written: bool) -> None:
        """Waits for the batch that is being written, then lets it be applied. If the disk was full, only its items that
        are not journaled go on."""
        try:
            if sync is not None:
                await asyncio.shield(sync)  # A loop that is stopped waits for its end: see `run`.
        except ResourceExhausted as error:
            self.commit.refused(self._hooks.on_full(error))
            return
        if written:
            self._hooks.on_taken()
        self.commit.written()

    async def _apply(self) -> None:
        """Applies everything that may be applied, in slices of about LOOP_SLICE_MS. A record that would make a slice
        longer begins the next one."""
        commit = self.commit
        if not commit.to_apply:
            return
        waiting = self._hooks.throttle()
        if waiting is not None:
            await waiting
        began = time.perf_counter()
        had_rest = False
        while commit.to_apply:
            if commit.whole:
                spent_ms = (time.perf_counter() - began) * 1000
                if spent_ms > 0.5 and spent_ms + commit.next_operations * OPERATION_US / 1000 > LOOP_SLICE_MS:
                    began = await self._pause(began)
                self._hooks.check_may_answer()
            try:
                commit.step()
            finally:
                if not commit.whole:
                    self.between_records.clear()  # For good if it failed: the partly changed tables must not be saved.
            if not commit.whole:
                if time.perf_counter() - began > LOOP_SLICE_MS / 2000:
                    had_rest = True
                    began = await self._rest(began)
            elif not self.between_records.is_set():
                began = await self._go_on(began)
                if had_rest:  # Tasks that waited for all of the record have a turn now.
                    had_rest = False
                    began = await self._pause(began)
        self._hooks.on_turn()
        self._steps.done(began)

    async def _pause(self, began: float) -> float:
        """Lets other tasks run between two records. Returns when the next step begins, as time.perf_counter()."""
        self._hooks.on_turn()
        self._steps.done(began)
        await _others_turns()
        return time.perf_counter()

    async def _rest(self, began: float) -> float:
        """Lets other tasks run in the middle of a record; they must not touch tables or dispatch. Returns when the next
        step begins, as time.perf_counter()."""
        self._steps.done(began)
        try:
            await _others_turns()
        except asyncio.CancelledError:  # The record is finished even when the loop is stopped.
            self.commit.finish_record()
            self._finish()
            raise
        return time.perf_counter()

    async def _go_on(self, began: float) -> float:
        """Ends the time of a record applied in part: sets `between_records` and does the work that waited for it, in
        slices of about LOOP_SLICE_MS. Returns when the last one began."""
        self.between_records.set()
        while self._afterwards:
            self._afterwards.popleft()()
            if self._afterwards and time.perf_counter() - began > LOOP_SLICE_MS / 1000:
                try:
                    began = await self._pause(began)
                except asyncio.CancelledError:  # What ended is closed even when the loop is stopped.
                    self._finish()
                    raise
        return began

    def _finish(self) -> None:
        """Does at once what `_go_on` does, as the loop ends."""
        self.between_records.set()
        while self._afterwards:
            self._afterwards.popleft()()


async def _others_turns() -> None:
    for _ in range(TURNS_BETWEEN_SLICES):
        await asyncio.sleep(0)


async def _ended(work: asyncio.Future[object]) -> None:
    """Waits until the work has ended, in whichever way. It does so even if it is cancelled meanwhile, and then raises
    CancelledError: a thread's work cannot be cancelled, and would go on beside what comes next."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if not work.cancelled():
        work.exception()  # It was retrieved, or is told by what comes next.
    if cancelled is not None:
        raise cancelled
