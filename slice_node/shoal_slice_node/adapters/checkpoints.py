"""Writes checkpoints of what the node decides to freeze, and does what follows: releases the journal below the
checkpoint (to the archive first, if there is one), and lets unused pages of the checkpoint leave memory.

Checkpoints belong to the data, not to a role: a follower makes them too. Not here: when to freeze
(core/node/freezing).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from shoal_contract.errors import Corrupt, ResourceExhausted, ShoalError, Unavailable
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.commit_loop import JournalThread
from shoal_slice_node.adapters.limits import (
    CHECKPOINT_RETRY_MS,
    CHECKPOINT_RETRY_MS_MAX,
    CHECKPOINT_SLOW_S,
    DELTA_BYTES_MAX,
    DELTA_FAILING_STALL_FACTOR,
    DELTA_FREEING_FACTOR,
    DELTA_FROZEN_FACTOR,
    DELTA_STALL_FACTOR,
    DELTA_TROUBLE_FACTOR,
    IMPORT_STALL_FACTOR,
)
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.node.freezing import Freezing
from shoal_slice_node.processes.limits import IDLE_MS
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.limits import STORE_GROWTH_BYTES

_log = logging.getLogger(__name__)


class Checkpoints:
    """Runs the checkpoints of one store. `figures`: the last checkpoint's, as the checkpointer reported them.
    `problem`: why the last attempt failed; "" if it succeeded. `delta_bytes_max`: memory for changes that no checkpoint
    has; applying waits before it is full. `on_emptied`: the leader's; told of keys that lost their last binding."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        state: State,
        freezing: Freezing,
        in_journal_thread: JournalThread,
        archiving: Archiving | None = None,
        delta_bytes_max: int = DELTA_STALL_FACTOR * DELTA_BYTES_MAX,
    ) -> None:
        self.problem = ""
        self._slowness = ""
        """Says that the checkpoint under way takes long; "" if it does not."""
        self._active_bytes_max = delta_bytes_max - freezing.fit(delta_bytes_max)
        """What is left for the active changes beside the frozen ones, which are in memory too."""
        self.figures: dict[str, Any] = {}
        self._store = store
        self._journal = journal
        self._state = state
        self._freezing = freezing
        self._in_journal_thread = in_journal_thread
        self.on_emptied: Callable[[list[bytes]], None] = forget_emptied
        self._archiving = archiving
        self._frozen = asyncio.Event()
        self._caught_up = asyncio.Event()
        if store.freezing:
            self._frozen.set()  # A start could not write it.
        else:
            self._caught_up.set()
        self._freed: asyncio.Future[None] | None = None
        self._let_go = True
        self._pause_ms = CHECKPOINT_RETRY_MS

    def consider(self) -> None:
        """Begins a checkpoint if one is due. To be called between records."""
        if self._freezing.due(steady_ms()):
            self._freezing.freeze()
            self._caught_up.clear()
            self._frozen.set()

    def throttle(self) -> asyncio.Future[None] | None:
        """Returns a future to wait for before more changes are applied, if the checkpointer is far behind; else
        None."""
        factor = DELTA_FAILING_STALL_FACTOR if self.problem or self._slowness else DELTA_STALL_FACTOR
        return self.next_end() if self._behind(factor) else None

    @property
    def trouble(self) -> str:
        """Says that checkpoints fail, and why, or that one takes long. "": neither. For a node that takes changes:
        whether it does is asked first (`Broker.trouble`)."""
        if self.problem:
            return f"checkpoints fail, and are tried again; changes are still taken: {self.problem}"
        return f"changes are still taken, but {self._slowness}" if self._slowness else ""

    @property
    def refusal(self) -> str:
        """Says why no more changes may be taken, but for those that free room: checkpoints fail, and memory would not
        hold the changes that wait for them. "": nothing is wrong."""
        return self._too_many(DELTA_TROUBLE_FACTOR)

    @property
    def freeing_refusal(self) -> str:
        """Says why not even changes that free room may be taken: their rows wait for a checkpoint, too."""
        return self._too_many(DELTA_FREEING_FACTOR)

    def _too_many(self, factor: int) -> str:
        with_frozen = factor + DELTA_FROZEN_FACTOR
        why = self.problem or self._slowness
        if why and (self._behind(factor) or self._freezing.is_large(with_frozen, with_frozen=True)):
            waiting = self._store.delta_rows + self._store.frozen_rows
            return f"checkpoints {'fail' if self.problem else 'hang'}, and {waiting} changes wait for one: {why}"
        return ""

    async def room_for_imports(self) -> None:
        """Waits while the checkpointer is so far behind that imports should leave the remaining room to others. Not
        while checkpoints fail: then an import is told whether changes are taken."""
        while self._behind(IMPORT_STALL_FACTOR) and not (self.problem or self._slowness):
            await self.next_end()

    def _behind(self, factor: int) -> bool:
        store = self._store
        if not store.freezing:
            return False
        share = self._active_bytes_max
        return self._freezing.is_large(factor) or store.delta_bytes * DELTA_STALL_FACTOR >= share * factor

    def next_end(self) -> asyncio.Future[None]:
        """Returns a future that is done when the next checkpoint is, or fails, or when the frozen delta has melted."""
        if self._freed is None or self._freed.done():
            self._freed = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._freed)

    async def reach(self, lsn: int, consider: Callable[[], None]) -> None:
        """Waits until the store has everything up to `lsn`, which must be applied already. The callback `consider`
        calls the method `consider` as soon as no record is applied in part. Raises Unavailable if checkpoints fail: the
        next attempt may come long after."""
        self._freezing.want(lsn)
        while self._store.checkpoint_lsn < lsn:
            if self.problem:
                raise Unavailable(f"no checkpoint can be written now: {self.problem}", subject="checkpoint")
            consider()
            await self.next_end()

    async def run(self) -> None:
        """Writes each frozen delta, until it is cancelled. Raises Corrupt."""
        while True:
            await self._frozen.wait()
            self._frozen.clear()
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        """Writes the frozen delta. Tries until it is written, or melted for the next one, which is wanted at once."""
        while True:
            slow = asyncio.get_running_loop().call_later(CHECKPOINT_SLOW_S, self._slow)
            try:
                self.figures = await self._store.checkpoint()
                break
            except Corrupt:
                raise
            except ShoalError as error:
                if error.message != self.problem:
                    _log.error(
                        "a checkpoint failed: %s. It is tried again when there is more room, and every %d s at least;"
                        " until it succeeds, the journal grows, and changes are refused once too many wait",
                        *(error, CHECKPOINT_RETRY_MS_MAX // 1000),
                    )
                self.problem = error.message
                self._wake_waiting()  # They need not wait for one that fails.
                if isinstance(error, ResourceExhausted):  # Else the next segment takes what the checkpoint waits for.
                    self._journal.next_segment.leave_bytes = self._store.frozen_bytes + STORE_GROWTH_BYTES
            finally:
                slow.cancel()
                self._slowness = ""
            if await self._pause():
                self._freezing.want(self._store.checkpoint_lsn + 1)
                self._ended()
                return
        self._pause_ms = CHECKPOINT_RETRY_MS
        if self.problem:
            _log.info("checkpoints are written again")
            self.problem = ""
            self._journal.next_segment.leave_bytes = 0
        self.on_emptied(self.figures.pop("emptied"))
        below_lsn = self._store.checkpoint_lsn + 1
        if self._archiving is not None:
            self._archiving.release(below_lsn)
        else:
            await self._release(below_lsn)
        self._ended()

    def _slow(self) -> None:
        pid = self._store.checkpointer_pid
        self._slowness = f"the checkpointer, process {pid}, has written for more than {CHECKPOINT_SLOW_S:g} s"
        _log.warning(
            "%s. Until it ends, the journal grows, and changes are refused once too many wait. If it takes no processor"
            " time and writes nothing, kill -9 %d: another one is started, and nothing is lost",
            *(self._slowness, pid),
        )
        self._wake_waiting()  # They need not wait for one that hangs.

    def _ended(self) -> None:
        """Lets those go on that wait until nothing is frozen."""
        if not self._store.freezing:  # The next delta may have been frozen while the journal was released.
            self._caught_up.set()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    async def _pause(self) -> bool:
        """Waits before the next attempt: longer each time, but no longer than until the disk has more room than now, or
        there is much less to write. Returns whether that is so: then nothing is frozen."""
        free_bytes, end_ms = self._store.disk_free_bytes, steady_ms() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, CHECKPOINT_RETRY_MS_MAX)
        while (left_ms := end_ms - steady_ms()) > 0:
            await asyncio.sleep(min(left_ms, CHECKPOINT_RETRY_MS) / 1000)
            emptied = await self._store.melt()
            if emptied is not None:
                self.on_emptied(emptied)
                return True
            if self._store.disk_free_bytes >= free_bytes + STORE_GROWTH_BYTES:
                break
        return False

    async def _release(self, below_lsn: int) -> None:
        try:
            await self._in_journal_thread(lambda: self._journal.release(below_lsn))
        except ResourceExhausted as error:
            _log.warning("the journal below the checkpoint is kept until the next one: %s", error.message)

    def rest(self, idle_s: float) -> None:
        """Lets the checkpoint's pages leave the resident memory once the node was idle for more than IDLE_MS. Called
        regularly; `idle_s`: the time since the last request."""
        if idle_s <= IDLE_MS / 1000:
            self._let_go = True
        elif self._let_go and not self._store.freezing:
            self._let_go = False
            self._store.let_go_of_memory()

    async def hold(self) -> None:
        """Stops new checkpoints from beginning; returns once none is under way."""
        self._freezing.hold()
        await self._caught_up.wait()

    async def finish(self) -> None:
        """Writes a last checkpoint of everything. Called after `run` was cancelled between two checkpoints."""
        while self._state.lsn > self._store.checkpoint_lsn:
            self._freezing.freeze()
            await self._checkpoint()


def forget_emptied(key_ids: list[bytes]) -> None:
    """Does nothing: without a leader nothing is reclaimed. The next leader walks the hints, which have these keys."""
