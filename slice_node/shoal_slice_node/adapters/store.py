"""The store: one folder with a checkpoint, the delta over it, and the process that writes the delta to the checkpoint.

Belongs here: their common life. Not here: the journal (journal_files), when to freeze
(core/node/freezing).
The store is right after a crash at any moment: its LSN and its rows are written in one LMDB transaction, and the
journal above that LSN restores the delta.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from shoal_slice_node.adapters.limits import DELTA_ROWS_MAX, MELT_SHARE
from shoal_slice_node.core.rows.small_rows import HINT
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.processes.checkpointer import Checkpointer
from shoal_slice_node.storage.folder_lock import lock_folder
from shoal_slice_node.storage.lmdb_layout import DATA_FILE
from shoal_slice_node.storage.lmdb_tables import LmdbBase

_log = logging.getLogger(__name__)


class StoreSize(NamedTuple):
    """Says how large a store is, in bytes. `file_bytes`: up to its last page. `tables_bytes`: the pages of its tables;
    others are unused, but a page that an open snapshot reads is not used again. `disk_free_bytes`: what the disk has
    left."""

    file_bytes: int
    tables_bytes: int
    disk_free_bytes: int


class Store:
    """Keeps a checkpoint with the delta over it. Use it from one event loop. `tables` is the delta: synchronous, for
    the core."""

    def __init__(
        self, folder: Path, lock_fd: int, checkpointer: Checkpointer, base: LmdbBase, delta_rows_max: int
    ) -> None:
        self._folder = folder
        self._lock_fd = lock_fd
        self._checkpointer = checkpointer
        self._base = base
        self._frozen_lsn: int | None = None
        self._frozen_rows = self._frozen_bytes = 0
        self.identity = base.identity
        self.checkpointer_restarts = 0
        self.tables = Delta(base)
        self.checkpoint_lsn = base.lsn
        self.checkpoint_ms = int((folder / DATA_FILE).stat().st_mtime * 1000)
        """The Unix time at which the checkpoint was committed, in milliseconds, by this machine's clock."""
        self.delta_rows_max = delta_rows_max

    @classmethod
    async def open(cls, folder: Path, delta_rows_max: int = DELTA_ROWS_MAX, identity: bytes = b"") -> Store:
        """Opens the store in `folder`; makes the folder and an empty store of this identity if there is none.
        `delta_rows_max`: the number of changed rows at which the store's owner should freeze the delta. Raises Conflict
        (another process has it, or it has another format), Corrupt, ResourceExhausted."""
        lock_fd = await lock_folder(folder)
        try:
            checkpointer = await Checkpointer.start(folder, lock_fd, identity)
            try:
                base = LmdbBase(folder)
            except BaseException:
                await checkpointer.close()
                raise
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(folder, lock_fd, checkpointer, base, delta_rows_max)

    @property
    def removed(self) -> bool:
        """Returns whether the store was removed since it was opened. A copy that took its place is no removal."""
        return os.fstat(self._lock_fd).st_nlink == 0 and not (self._folder / DATA_FILE).exists()

    @property
    def delta_rows(self) -> int:
        """Returns the number of rows changed since the last freeze."""
        return self.tables.rows_active

    @property
    def delta_bytes(self) -> int:
        """Returns the approximate memory of the rows changed since the last freeze, in bytes."""
        return self.tables.bytes_active

    @property
    def disk_bytes(self) -> int:
        """Returns the disk space allocated for the checkpoint, in bytes."""
        file = self._folder / DATA_FILE
        return file.stat().st_blocks * 512 if file.exists() else 0

    @property
    def disk_free_bytes(self) -> int:
        """Returns the number of bytes that this process may still write on the store's file system."""
        found = os.fstatvfs(self._lock_fd)
        return found.f_bavail * found.f_frsize

    @property
    def size(self) -> StoreSize:
        return StoreSize(self._base.disk_bytes, self._base.tables_bytes, self.disk_free_bytes)

    @property
    def checkpointer_pid(self) -> int:
        return self._checkpointer.pid

    @property
    def freezing(self) -> bool:
        """Returns whether a delta is frozen: True from `freeze` until `checkpoint` has returned."""
        return self._frozen_lsn is not None

    @property
    def frozen_rows(self) -> int:
        """Returns the number of rows that are frozen."""
        return self._frozen_rows

    @property
    def frozen_bytes(self) -> int:
        """Returns the approximate memory of the frozen rows, in bytes."""
        return self._frozen_bytes

    def freeze(self, lsn: int) -> None:
        """Freezes the delta, which must hold everything up to `lsn` and nothing above. O(1). Not to be called while
        `freezing`."""
        assert not self.freezing, "the last frozen delta is not checkpointed yet"
        assert lsn >= self.checkpoint_lsn
        self._frozen_rows, self._frozen_bytes = self.delta_rows, self.delta_bytes
        self.tables.freeze()
        self._frozen_lsn = lsn

    async def checkpoint(self) -> dict[str, Any]:
        """Writes the frozen delta and returns figures. Other work goes on meanwhile. Raises Unavailable if the
        checkpointer died, ResourceExhausted, Corrupt: then nothing has changed, and the next call sends the same delta
        again (to a new checkpointer if needed)."""
        assert self._frozen_lsn is not None, "nothing is frozen"
        if self._checkpointer.dead:
            await self._checkpointer.close()
            _log.warning(
                "the checkpointer's %s. Another one is started, and writes the same checkpoint; nothing is lost",
                self._checkpointer.ending,
            )
            self.checkpointer_restarts += 1
            self._checkpointer = await Checkpointer.start(self._folder, self._lock_fd)
        figures = await self._checkpointer.write(self.tables.pieces(), self._frozen_lsn)
        if figures.pop("written_again", 0):
            _log.warning(
                "a write to the checkpoint %s failed with an I/O error, and succeeded when it was repeated. Nothing is"
                " lost. If the disk was not full at this moment, check it",
                self._folder / DATA_FILE,
            )
        self._base.renew()
        self.tables.drop_frozen()
        self.checkpoint_lsn = self._frozen_lsn
        self.checkpoint_ms = time.time_ns() // 1_000_000
        await self._end_freezing()
        return figures

    async def _end_freezing(self) -> None:
        while self.tables.free():  # noqa: ASYNC110 - not waiting: others get their turn
            await asyncio.sleep(0)
        self._frozen_lsn = None
        self._frozen_rows = self._frozen_bytes = 0

    async def melt(self) -> list[bytes] | None:
        """Makes the frozen delta active again, if much of what it would write was trimmed since: the next one is frozen
        without that, and is at least MELT_SHARE smaller. Other work goes on meanwhile. Returns the ids of keys that may
        have lost their last binding, of which no checkpoint will tell; None: it did nothing.

        A checkpointer that died may have written it: then it must be written again as it is, since what came and went
        leaves no trace in the active delta, and would stay in the base."""
        if not self._base.is_newest:
            return None
        saved_bytes = 0
        for trimmed_bytes in self.tables.trimmed():
            saved_bytes += trimmed_bytes
            await asyncio.sleep(0)
        if saved_bytes <= self.delta_bytes + self._frozen_bytes // MELT_SHARE:
            return None
        emptied: list[bytes] = []
        more = True
        while more:
            more = self.tables.melt()
            undone = self.tables.take_undone()
            for key_id in undone:
                self.tables.local_hints.put(key_id, HINT)
            emptied += undone
            await asyncio.sleep(0)
        self.tables.drop_frozen()
        await self._end_freezing()
        return emptied

    def warm(self) -> None:
        """Reads the checkpoint into the page cache after a start, before its rows are needed. Blocks: call it in a
        thread."""
        self._base.warm()

    def let_go_of_memory(self) -> int:
        """Removes the checkpoint's pages from the resident memory of an idle node (the page cache keeps them). Returns
        the bytes freed."""
        return self._base.let_go_of_memory()

    async def close(self) -> None:
        """Closes the store without a checkpoint: the journal has everything that is in the delta."""
        self._base.close()
        await self._checkpointer.close()
        os.close(self._lock_fd)
