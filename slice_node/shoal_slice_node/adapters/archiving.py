"""Archives journal segments that are no longer needed, then releases them. A failing archive costs disk, never records.

Belongs here: order, retries, figures. Not here: archiving one segment (storage/archive), which segments are released
when (checkpoints).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_slice_node.adapters.commit_loop import JournalThread
from shoal_slice_node.adapters.limits import ARCHIVE_RETRY_MS
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.journal_files import Journal

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    """Holds the archive's figures. `archived`: segments archived since the start. `waiting`: closed segments that the
    journal keeps for the archive. `failures`: failed attempts since the start. `problem`: why the last attempt failed;
    "" if it succeeded."""

    archived: int = 0
    waiting: int = 0
    failures: int = 0
    problem: str = ""


class Archiving:
    """Archives and releases journal segments. `figures` are always current. Use it from the event loop only."""

    def __init__(
        self, archive: Archive, journal: Journal, in_journal_thread: JournalThread, every_s: float = 0
    ) -> None:
        """`every_s`: a segment older than this is closed and archived even if it is not full; 0: only full ones are."""
        self._every_s = every_s
        self._sealed_s = time.monotonic()
        self.figures = ArchiveFigures()
        self._archive = archive
        self._journal = journal
        self._in_journal_thread = in_journal_thread
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._below_lsn = 0
        self._lacking = ""
        """What the journal's disk, or the process, lacked at the last attempt; "": nothing."""
        self._refused: tuple[Path, int] | None = None
        """A segment that was closed by its age, with its sound bytes, which the archive did not take."""
        self._wake = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Says that the archive takes nothing, as a sentence; "" while it does, or nothing was tried."""
        if not self.figures.problem:
            return ""
        waiting = f"{self.figures.waiting} wait on the slice's disk"
        return f"the archive takes no segments, and {waiting}: {self.figures.problem}"

    def release(self, below_lsn: int) -> None:
        """Requests that the records below `below_lsn`, which nothing needs any more, are archived and then released.
        Returns at once."""
        self._below_lsn = max(self._below_lsn, below_lsn)
        self._wake.set()

    async def run(self) -> None:
        """Runs until it is cancelled. Raises Corrupt if the journal's own disk failed."""
        done = True
        while True:
            try:
                async with asyncio.timeout((self._every_s or None) if done else ARCHIVE_RETRY_MS / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            done = await self._attempt()

    async def _attempt(self) -> bool:
        """Archives and releases what can be. Returns False if something has to be tried again. Raises Corrupt."""
        try:
            done = await self._turn() and await self._seal_by_age()
        except ResourceExhausted as error:
            if error.message != self._lacking:
                _log.warning(
                    "a journal segment could not be closed or removed: %s. It is tried again every %d ms, and nothing"
                    " is lost",
                    *(error.message, ARCHIVE_RETRY_MS),
                )
            self._lacking = error.message
            return False
        self._lacking = ""
        return done

    async def _seal_by_age(self) -> bool:
        """Closes and archives the segment that is being written, if it is old enough. The journal keeps the segment
        until its records are checkpointed. Returns False if the archive did not take it, nor the one before."""
        if self._refused is not None and not await self._put_sealed(*self._refused):
            return False
        if not self._every_s or time.monotonic() - self._sealed_s < self._every_s:
            return True
        sealed = await self._journal_says(self._journal.seal)
        if sealed is not None and not await self._put_sealed(*sealed):
            return False
        self._sealed_s = time.monotonic()
        return True

    async def _put_sealed(self, path: Path, sound_bytes: int) -> bool:
        archived = await self._archived(partial(self._archive.put, path, sound_bytes))
        self._refused = None if archived else (path, sound_bytes)
        return archived

    async def finish(self, checkpoint_lsn: int) -> None:
        """Archives and releases what is checkpointed; also the last segment if all of it is checkpointed. Called after
        `run` was cancelled, when nothing more is appended. What cannot be archived stays in the journal."""
        self._below_lsn = checkpoint_lsn + 1
        if await self._turn() and self._journal.next_lsn == self._below_lsn:
            sealed = await self._journal_says(self._journal.seal)
            if sealed is not None:
                path, sound_bytes = sealed
                if await self._archived(lambda: self._archive.put(path, sound_bytes)):
                    await self._journal_says(lambda: self._journal.release(self._below_lsn))
        await asyncio.to_thread(self._thread.shutdown)

    async def _turn(self) -> bool:
        """Archives and releases the closed segments. Returns False if the archive did not take one of them."""
        closed = await self._journal_says(lambda: self._journal.closed(self._below_lsn))
        self.figures = replace(self.figures, waiting=len(closed))
        for number, (segment, end_lsn) in enumerate(closed, 1):
            if not await self._archived(partial(self._archive.put, segment.path)):
                return False
            if self._refused is not None and self._refused[0] == segment.path:
                self._refused = None
            await self._journal_says(partial(self._journal.release, end_lsn))
            self.figures = replace(self.figures, waiting=len(closed) - number)
        return True

    async def _archived(self, put: Callable[[], None]) -> bool:
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, put)
        except (ResourceExhausted, Unavailable) as error:
            if error.message != self.figures.problem:
                _log.warning(
                    "the archive takes no segments: %s. They stay in the journal, and take disk space there, until it"
                    " does",
                    error,
                )
            self.figures = replace(self.figures, failures=self.figures.failures + 1, problem=error.message)
            return False
        if self.figures.problem:
            _log.info("the archive %s takes segments again", self._archive.folder)
        self.figures = replace(self.figures, archived=self.figures.archived + 1, problem="")
        return True

    async def _journal_says(self, work: Callable[[], Result]) -> Result:
        return cast(Result, await self._in_journal_thread(work))
