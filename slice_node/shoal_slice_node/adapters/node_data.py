"""Keeps a node's data for as long as its process runs, whichever role it has: store and journal, the journal's only
thread, checkpoints and archive.

Belongs here: their common life, and the replica that has the tables while nothing leads. Not here: what roles do with
them (broker, following), recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from shoal_contract.errors import Corrupt, ShoalError
from shoal_runtime.tasks import OnFailure, Tasks
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.limits import CHECKPOINT_STOP_S, FOLDER_LOOK_MS
from shoal_slice_node.adapters.recovery import Recovered
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.storage.archive import Archive

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Holds the data's options. `delta_bytes`: memory for changes that no checkpoint has. `archive`: this node's own
    folder for closed journal segments; None: they are deleted. `archive_every_s`: a segment is closed at this age; 0:
    only when it is full."""

    delta_bytes: int
    archive: Path | None = None
    archive_every_s: float = 0


class NodeData:
    """Keeps what was recovered. `replica`: has the tables while no leader has them; a leader is made of it, and gives
    the next one back."""

    def __init__(self, recovered: Recovered, options: DataOptions, on_failure: OnFailure) -> None:
        self.store = recovered.store
        self.journal = recovered.journal
        self.replica: Replica = recovered.replica
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        archive = options.archive
        self.archiving = (
            None
            if archive is None
            else Archiving(Archive(archive), self.journal, self.in_journal_thread, options.archive_every_s)
        )
        self.checkpoints = Checkpoints(
            self.store,
            self.journal,
            self.state,
            recovered.freezing,
            self.in_journal_thread,
            self.archiving,
            options.delta_bytes,
        )
        self._tasks = Tasks("data", on_failure)

    @property
    def state(self) -> State:
        """Returns the state of the tables: the same one in every role."""
        return self.replica.state

    def in_journal_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def start(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.store.warm)
        self._tasks.start("folder", self._end_without_folder())
        self._tasks.start("checkpoints", self.checkpoints.run())
        if self.archiving is not None:
            self.archiving.release(self.store.checkpoint_lsn + 1)  # What an earlier life could not archive.
            self._tasks.start("archiving", self.archiving.run())

    async def _end_without_folder(self) -> None:
        """Raises Corrupt once the data is removed: what is acknowledged from then on would be lost."""
        while not self.store.removed:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(FOLDER_LOOK_MS / 1000)
        raise Corrupt(
            "its data folder was removed while it ran: what the slice had is gone, unless there is a backup",
            subject="data folder",
        )

    async def close(self, checkpoint: bool, within_s: float = CHECKPOINT_STOP_S) -> None:
        """Closes the data, when no role uses it any more. `checkpoint`: it first checkpoints and archives everything,
        if that can be done in `within_s`, so that the next start has nothing to replay."""
        try:
            async with asyncio.timeout(within_s if checkpoint else 0):
                await self.checkpoints.hold()
                await self._tasks.close()
                await self.checkpoints.finish()
                if self.archiving is not None:
                    await self.archiving.finish(self.store.checkpoint_lsn)
        except TimeoutError:
            if checkpoint:
                _log.warning(
                    "the node stops before its last checkpoint or archive was finished, since %g s are over. Nothing is"
                    " lost: the next start replays the journal",
                    within_s,
                )
        except ShoalError as error:
            kept = "" if self.store.removed else ". Nothing is lost: the next start replays the journal"
            _log.warning("the node stops without a last checkpoint: %s%s", error, kept)
        await self._tasks.close()
        await self.in_journal_thread(self.journal.close)
        self._thread.shutdown()
        await self.store.close()
