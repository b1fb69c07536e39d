"""Archives journal segments, the oldest first, and releases those that nothing needs. A failing archive costs disk,
never records.

The archive never gets a segment before it has all older ones. What it lacks is found by a look at it: nothing that a
restart forgets decides it. This process only remembers how far it has looked, so that it looks at each segment once.

Belongs here: order, retries, figures. Not here: archiving one segment (storage/archive), which segments are released
when (checkpoints).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_slice_node.adapters.commit_loop import JournalThread
from shoal_slice_node.adapters.limits import ARCHIVE_RETRY_MS, ARCHIVE_TURN_SEGMENTS
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.disk_errors import typed_error
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_reader import Segment
from shoal_slice_node.storage.journal_segment import first_lsn_of
from shoal_slice_node.storage.known_archives import LastArchived

_log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    """Holds the archive's figures. `archived`: segments archived since the start. `waiting`: segments that the archive
    is to take, or to be looked for in it, now. `failures`: failed attempts since the start. `problem`: why the last
    attempt failed; "" if it succeeded."""

    archived: int = 0
    waiting: int = 0
    failures: int = 0
    problem: str = ""


class _Due(NamedTuple):
    """Names a segment that the archive is to take, or that may be released. `sound_bytes`: of one that the journal
    sealed and would write on in after a crash, since no record follows it; None: nothing is written to it again."""

    path: Path
    end_lsn: int
    sound_bytes: int | None = None


@contextmanager
def _typed(folder: Path) -> Iterator[None]:
    """Raises the errors of the journal's disk as typed ones."""
    try:
        yield
    except OSError as error:
        raise typed_error(error, folder) from error


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
        self._archived_lsn = 0
        """The archive has every segment of the journal that ends at this LSN or below; 0: it was not looked at."""
        self._sealed: _Due | None = None
        """The segment that was sealed last. A start writes on in it, unless a record follows it."""
        self._from_lsn = journal.first_lsn
        """The journal began at this LSN at the start: what is before it was archived by an earlier life, or never."""
        self._wake = asyncio.Event()
        self._last: LastArchived | None = None
        """What is known of the archive, once it was looked at. Of the archive's thread, as is the next field."""
        self._looked = False

    @property
    def trouble(self) -> str:
        """Says that the archive takes nothing, as a sentence; "" while it does, or nothing was tried."""
        if not self.figures.problem:
            return ""
        waiting = f"{self.figures.waiting} wait on the slice's disk to be put or found there"
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
            done = await self._turn() and (not await self._seal_by_age() or await self._turn())
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
        """Closes the segment that is being written, if it is old enough, and returns whether it was. Called when the
        archive has all before it. The journal keeps the segment until its records are checkpointed."""
        if not self._every_s or time.monotonic() - self._sealed_s < self._every_s:
            return False
        await self._journal_says(self._seal)
        self._sealed_s = time.monotonic()
        return True

    def _seal(self) -> None:
        sealed = self._journal.seal()
        if sealed is not None:
            self._sealed = _Due(sealed[0], self._journal.next_lsn, sealed[1])

    async def finish(self, checkpoint_lsn: int) -> None:
        """Archives and releases what is checkpointed; also the last segment if all of it is checkpointed. Called after
        `run` was cancelled, when nothing more is appended. What cannot be archived stays in the journal. The last line
        in the log tells from which LSN on the archive has everything; `shoal up` (shoal_local.archived) believes
        nothing else."""
        self._below_lsn = checkpoint_lsn + 1
        if await self._turn() and self._journal.next_lsn == self._below_lsn:
            await self._journal_says(self._seal)
            if await self._turn() and self._archived_lsn == self._below_lsn:
                await self._journal_says(lambda: self._journal.release(self._below_lsn))
        await self._tell(self._journal.next_lsn)
        await asyncio.to_thread(self._thread.shutdown)

    async def _tell(self, end_lsn: int) -> None:
        """Says in the log what the archive has of all records below `end_lsn`, where the journal ends."""
        folder = self._archive.folder
        if end_lsn not in (self._archived_lsn, self._from_lsn):
            why = self.figures.problem or "they are in no checkpoint yet"
            _log.warning("the archive %s lacks the last records, which are only in the journal: %s", folder, why)
            return
        look = partial(self._archive.has_from, end_lsn, self._journal.known_archives)
        try:
            first_lsn = await asyncio.get_running_loop().run_in_executor(self._thread, look)
        except (ResourceExhausted, Unavailable) as error:
            _log.warning("the archive %s could not be looked at: %s", folder, error)
            return
        if first_lsn is not None:
            _log.info("the archive %s has all records from LSN %d to %d", folder, first_lsn, end_lsn - 1)
        else:
            _log.warning(
                "the archive %s lacks the records up to LSN %d, or has later ones, and the journal has them no more: it"
                " is not the archive that was given before, was changed, or has records of another cluster or life",
                *(folder, end_lsn - 1),
            )

    async def _turn(self) -> bool:
        """Archives what the archive lacks, and releases what nothing needs, until nothing is due. Returns False if the
        archive did not take a segment: no later one is tried then."""
        while True:
            below_lsn = self._below_lsn
            due, segments = await self._journal_says(partial(self._due, below_lsn, self._archived_lsn))
            self.figures = replace(self.figures, waiting=len(due))
            if not due:
                return True
            for number, one in enumerate(due[:ARCHIVE_TURN_SEGMENTS], 1):
                releases = one.end_lsn <= below_lsn and one.sound_bytes is None
                if not await self._archived(partial(self._put, one, releases, segments)):
                    return False
                self._archived_lsn = max(self._archived_lsn, one.end_lsn)
                if releases:
                    await self._journal_says(partial(self._journal.release, one.end_lsn))
                self.figures = replace(self.figures, waiting=len(due) - number)

    def _due(self, below_lsn: int, archived_lsn: int) -> tuple[list[_Due], Sequence[Segment]]:
        """Returns what is closed and may be released, then, if segments go by age, all else that is closed; then what
        was sealed last; and all of the journal's segments. Runs in the journal's thread."""
        next_lsn = self._journal.next_lsn
        closed = self._journal.closed(next_lsn if self._every_s else below_lsn)
        due = [_Due(segment.path, end) for segment, end in closed if end <= below_lsn or end > archived_lsn]
        sealed = self._sealed
        if sealed is not None and archived_lsn < sealed.end_lsn == next_lsn:
            due.append(sealed)
        return due, self._journal.segments

    def _put(self, one: _Due, releases: bool, segments: Sequence[Segment]) -> bool:
        """Archives a segment, and returns whether the archive lacked it. All of it is compared with the archive's
        before it is released; else a look is enough. Runs in the archive's thread. `segments`: the journal's. Raises
        ResourceExhausted, Unavailable, Corrupt (the journal's disk)."""
        known = self._journal.known_archives
        if not self._looked:
            with _typed(one.path.parent):
                known.make()  # While there is room on the disk.
            self._last = self._archive.found(segments, known)
            self._looked = True
        whole = releases or one.sound_bytes is not None
        lacked = self._archive.put(one.path, one.sound_bytes) if whole else self._archive.put_lacking(one.path)
        follows = self._last is None or self._last.end_lsn == first_lsn_of(one.path.name)
        if lacked or whole or follows:  # What follows, and was there, was put by a life that was killed then.
            with _typed(one.path.parent):
                self._last = known.note(self._last, one.path, one.end_lsn, one.sound_bytes)
        return lacked

    async def _archived(self, put: Callable[[], bool]) -> bool:
        try:
            lacked = await asyncio.get_running_loop().run_in_executor(self._thread, put)
        except (ResourceExhausted, Unavailable) as error:
            self._looked = False  # What is there next may be another archive.
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
        self.figures = replace(self.figures, archived=self.figures.archived + lacked, problem="")
        return True

    async def _journal_says(self, work: Callable[[], Result]) -> Result:
        return cast(Result, await self._in_journal_thread(work))
