"""When to checkpoint, and what follows: the journal below it goes (to the archive first, if there is one); pages that
nobody reads leave memory."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from shoal_contract.errors import Corrupt, ShoalError
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.adapters.commit_loop import JournalThread
from shoal_slice_node.adapters.limits import (
    CHECKPOINT_RETRY_MS,
    DELTA_AGE_MS,
    DELTA_BYTES_MAX,
    DELTA_STALL_FACTOR,
    DELTA_TROUBLE_FACTOR,
    IMPORT_STALL_FACTOR,
    TAIL_BYTES_MAX,
    TAIL_OPERATIONS_MAX,
)
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.processes.limits import IDLE_MS
from shoal_slice_node.storage.journal_files import Journal

_log = logging.getLogger(__name__)


class Checkpoints:
    """`figures`: of the last checkpoint, as the checkpointer reported them. `problem`: why the last attempt failed; ""
    when it went well. `delta_bytes_max`: of memory for changes that no checkpoint has; applying waits before it is
    full."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        state: State,
        in_journal_thread: JournalThread,
        on_emptied: Callable[[list[bytes]], None],
        archiving: Archiving | None = None,
        delta_bytes_max: int = DELTA_STALL_FACTOR * DELTA_BYTES_MAX,
    ) -> None:
        self.problem = ""
        self._delta_bytes_max = delta_bytes_max
        self.figures: dict[str, Any] = {}
        self._store = store
        self._journal = journal
        self._state = state
        self._in_journal_thread = in_journal_thread
        self._on_emptied = on_emptied
        self._archiving = archiving
        self._frozen = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._caught_up.set()
        self._freed: asyncio.Future[None] | None = None
        self._changed_since_s: float | None = None
        self._held = False
        self._let_go = True
        self._frozen_at = (0, 0)
        self._wanted_lsn = 0

    @staticmethod
    def is_large(store: Store, factor: int = 1) -> bool:
        return store.delta_rows >= store.delta_rows_max * factor or store.delta_bytes >= DELTA_BYTES_MAX * factor

    def consider(self, applied_lsn: int, operations: int, journal_bytes: int) -> None:
        """Freezes the delta when it is large or old, or the journal above it long: binds and unbinds, publishes and
        acks that undo each other leave no rows, but must be replayed. Called between records, with running totals."""
        store = self._store
        if store.freezing or self._held or applied_lsn == store.checkpoint_lsn:
            return
        now = time.monotonic()
        if self._changed_since_s is None:
            self._changed_since_s = now
        old = now - self._changed_since_s > DELTA_AGE_MS / 1000
        operations_before, bytes_before = self._frozen_at
        long = operations - operations_before >= TAIL_OPERATIONS_MAX or journal_bytes - bytes_before >= TAIL_BYTES_MAX
        if old or long or self.is_large(store) or self._wanted_lsn > store.checkpoint_lsn:
            self._frozen_at = (operations, journal_bytes)
            self._freeze(applied_lsn)

    def _freeze(self, applied_lsn: int) -> None:
        self._state.kept.save()
        self._store.freeze(applied_lsn)
        self._changed_since_s = None
        self._caught_up.clear()
        self._frozen.set()

    def throttle(self) -> asyncio.Future[None] | None:
        """What to wait for before changing more; None: go on. Only when the checkpointer is far behind."""
        return self._next_end() if self._behind(DELTA_STALL_FACTOR) else None

    @property
    def trouble(self) -> str:
        """Why no more changes may be taken: checkpoints fail, and memory would not hold what they would have to write.
        "": nothing is wrong."""
        if self.problem and self._behind(DELTA_TROUBLE_FACTOR):
            return f"checkpoints fail, and {self._store.delta_rows} changes wait for one: {self.problem}"
        return ""

    async def room_for_imports(self) -> None:
        """Waits while the checkpointer is so far behind that imports should leave what room there is to others."""
        while self._behind(IMPORT_STALL_FACTOR):
            await self._next_end()

    def _behind(self, factor: int) -> bool:
        store = self._store
        if not store.freezing:
            return False
        share = self._delta_bytes_max - DELTA_BYTES_MAX  # The frozen changes are in memory too.
        return self.is_large(store, factor) or store.delta_bytes * DELTA_STALL_FACTOR >= share * factor

    def _next_end(self) -> asyncio.Future[None]:
        """Done when the next checkpoint is."""
        if self._freed is None or self._freed.done():
            self._freed = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._freed)

    async def reach(self, lsn: int, consider: Callable[[], None]) -> None:
        """Until the store has everything up to `lsn`, which is applied. `consider`: calls our `consider`."""
        self._wanted_lsn = max(self._wanted_lsn, lsn)
        while self._store.checkpoint_lsn < lsn:
            consider()
            await self._next_end()

    async def run(self) -> None:
        """Until cancelled. Raises Corrupt."""
        while True:
            await self._frozen.wait()
            self._frozen.clear()
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        while True:
            try:
                self.figures = await self._store.checkpoint()
                break
            except Corrupt:
                raise
            except ShoalError as error:
                if error.message != self.problem:
                    _log.error("a checkpoint failed; trying again every %d ms: %s", CHECKPOINT_RETRY_MS, error)
                self.problem = error.message
                await asyncio.sleep(CHECKPOINT_RETRY_MS / 1000)
        if self.problem:
            _log.info("checkpoints are written again")
            self.problem = ""
        self._on_emptied(self.figures.pop("emptied"))
        below_lsn = self._store.checkpoint_lsn + 1
        if self._archiving is not None:
            self._archiving.release(below_lsn)
        else:
            await self._in_journal_thread(lambda: self._journal.release(below_lsn))
        if not self._store.freezing:  # While the journal was released the next delta may have been frozen.
            self._caught_up.set()
        if self._freed is not None and not self._freed.done():
            self._freed.set_result(None)

    def rest(self, idle_s: float) -> None:
        """Called now and then, with how long nothing was asked: after a pause, the checkpoint's pages leave the
        resident memory."""
        if idle_s <= IDLE_MS / 1000:
            self._let_go = True
        elif self._let_go and not self._store.freezing:
            self._let_go = False
            self._store.let_go_of_memory()

    async def hold(self) -> None:
        """Begins no more checkpoints; returns once none is under way."""
        self._held = True
        await self._caught_up.wait()

    async def finish(self) -> None:
        """A last checkpoint of everything, after `run` was cancelled between two."""
        if self._state.lsn > self._store.checkpoint_lsn:
            self._state.kept.save()
            self._store.freeze(self._state.lsn)
            await self._checkpoint()
