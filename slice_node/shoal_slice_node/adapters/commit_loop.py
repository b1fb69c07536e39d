"""Drives the node's commits: writes its batches in the journal's thread, and lets it apply what is durable, in slices.

While one batch is being synced, the next gathers. Not here: what gathers and what is applied (core/node/commit).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal, Protocol

from shoal_contract.errors import Corrupt, Fenced, ResourceExhausted, ShoalError, Unavailable
from shoal_slice_node.adapters.clock import now_ms
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import (
    LOOP_SLICE_MS,
    OPERATION_US,
    PENDING_BYTES_DEFAULT,
    SOURCE_PENDING_BYTES_MIN,
)
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.core.node.commit import NODE, Batch, Commit, Item


class JournalWriter(Protocol):
    def append(self, data: bytes, first_lsn: int, last_lsn: int) -> None:
        """Durable when it returns. Called from a thread. Raises ResourceExhausted (nothing was written), Corrupt."""


JournalThread = Callable[[Callable[[], object]], "asyncio.Future[object]"]
"""Runs work in the one thread that the journal belongs to."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the loop asks and tells. `on_turn` hears of each slice of work. `throttle` may wait before a batch is
    applied. `may_answer`: False once the lease may be over. `on_full`: the journal refused a batch for want of space
    (True), or took one again (False)."""

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
    """`commit`: of the node that it drives. `large_frames`: the room of large frames that wait."""

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
        """Not set while a record is applied in part: nobody but the loop may look at the tables, or at dispatch."""
        self.between_records.set()
        self._afterwards: list[Callable[[], None]] = []

    def between(self, work: Callable[[], None]) -> None:
        """Does a small piece of work now, or when the record that is being applied is whole."""
        if self.between_records.is_set():
            work()
        else:
            self._afterwards.append(work)

    def submit(self, item: Item, source: Hashable = NODE) -> None:
        self.commit.submit(item, source)
        self._wake.set()

    def wake(self) -> None:
        """Something was submitted to the node itself."""
        if self.commit:
            self._wake.set()

    async def room(self, source: Hashable) -> None:
        """Waits until this source may submit more. Only a source that has much here waits."""
        while not self._has_room(source):
            await self._waiting_for_room.setdefault(source, asyncio.Event()).wait()

    def _has_room(self, source: Hashable) -> bool:
        """A source may fill half of what is free: the more is pending, the less of it may be its own. A source that
        waits has something here, so that the loop will look at it again."""
        own = self.commit.pending_bytes_of(source)
        free = max(0, self._pending_bytes_max - self.commit.pending_bytes)
        return own <= max(SOURCE_PENDING_BYTES_MIN, free // 2) or self.commit.ended

    async def run(self) -> None:
        """Until cancelled. Raises Corrupt: the journal failed, or a record cannot be applied; Fenced: the lease may be
        over. Nothing more may be acknowledged then."""
        sync: asyncio.Future[object] | None = None
        commit = self.commit
        try:
            while True:
                if not commit and not commit.to_apply:
                    self._wake.clear()
                    await self._wake.wait()
                batch = commit.gather(now_ms())
                self._make_room(batch)
                sync = self._write(batch) if batch.data else None
                await self._apply()
                await self._synced(sync)
        except Corrupt as error:
            self._end(Unavailable(f"the slice stops, and the outcome is unknown: {error.message}", subject="slice"))
            raise
        except ShoalError as error:
            self._end(error)
            raise
        finally:
            self._end(self._stopped)
            if sync is not None:
                await asyncio.gather(sync, return_exceptions=True)

    def _end(self, error: ShoalError) -> None:
        """Whatever is not answered yet never will be; nor what comes after."""
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
        return self._in_journal_thread(lambda: self._journal.append(batch.data, batch.first_lsn, batch.last_lsn))

    async def _synced(self, sync: asyncio.Future[object] | None) -> None:
        """The batch that was being written may be applied; or, where the disk was full, what needs no disk."""
        try:
            if sync is not None:
                await sync
        except ResourceExhausted as error:
            self._hooks.on_full(True)
            self.commit.refused(error)
            return
        if sync is not None:
            self._hooks.on_full(False)
        self.commit.written()

    async def _apply(self) -> None:
        """What may be applied, in slices of about LOOP_SLICE_MS: a record that would make one longer begins the
        next."""
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
                self._check_fence()
            try:
                commit.step()
            finally:
                if not commit.whole:
                    self.between_records.clear()  # For good, if it failed: nobody may save what it left.
            if not commit.whole:
                if time.perf_counter() - began > LOOP_SLICE_MS / 2000:
                    had_rest = True
                    began = await self._rest(began)
            elif not self.between_records.is_set():
                self._go_on()
                if had_rest:  # Who waited for the record to be whole has a turn now.
                    had_rest = False
                    began = await self._pause(began)
        self._hooks.on_turn()
        self._steps.done(began)

    async def _pause(self, began: float) -> float:
        """Between two records; when the next step begins."""
        self._hooks.on_turn()
        self._steps.done(began)
        await asyncio.sleep(0)
        return time.perf_counter()

    async def _rest(self, began: float) -> float:
        """In the middle of a record: nothing else happens to tables and dispatch meanwhile."""
        self._steps.done(began)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # Who stops the loop gets a whole record all the same.
            self.commit.finish_record()
            self._go_on()
            raise
        return time.perf_counter()

    def _check_fence(self) -> None:
        """Before anything is answered. Raises Fenced."""
        if not self._hooks.may_answer():
            raise Fenced(
                "this node's lease may be over: it answers nothing more, the outcome is unknown", subject="lease"
            )

    def _go_on(self) -> None:
        """Others may look again."""
        self.between_records.set()
        afterwards, self._afterwards = self._afterwards, []
        for piece in afterwards:
            piece()
