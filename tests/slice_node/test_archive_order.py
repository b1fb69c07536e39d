"""An archive that gets segments by their age has no hole, whatever it refused, and whenever the node ended."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.journal_files import Journal

from .archive_steps import archived_records
from .faulty_files import FaultyFiles
from .journal_steps import append, open_journal

ARCHIVE = Path("/archive")


class CountedFiles(FaultyFiles):
    """Counts what is asked of the archive's file system, without what this class itself asks. It takes nothing while
    `refuses`."""

    listed = 0
    read_files = 0
    refuses = False
    takes = 1 << 60
    """After so many more files it refuses one."""

    def names(self, folder: Path) -> list[str]:
        self.listed += folder == ARCHIVE
        return super().names(folder)

    def read(self, path: Path) -> bytes:
        self.read_files += path.parent == ARCHIVE
        return super().read(path)

    def rename(self, path: Path, to: Path) -> None:
        if to.parent == ARCHIVE:
            self.takes -= 1
            if self.refuses or self.takes == -1:
                raise OSError(errno.EIO, "faulty rename")
        super().rename(path, to)
        if to.parent == ARCHIVE:
            asked = self.listed, self.read_files
            records = archived_records(self, ARCHIVE)
            self.listed, self.read_files = asked
            assert [record.lsn for record in records] == list(range(1, len(records) + 1)), "a hole in the archive"

    def has(self) -> list[str]:
        """The first LSNs of what is archived."""
        return [str(int(path.stem, 16)) for path in self.paths() if path.match("/archive/*.journal")]


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 - another task's doing
            await asyncio.sleep(0.002)


class Running:
    """One life of the archiving of a node; `turns` counts what it asked of the journal."""

    def __init__(self, files: CountedFiles, journal: Journal, every_s: float) -> None:
        self.turns = 0
        self._thread = ThreadPoolExecutor(1)
        self.archiving = Archiving(Archive(ARCHIVE, files), journal, self._in_journal_thread, every_s)

    def _in_journal_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        self.turns += 1
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def turned(self) -> None:
        """Returns when what was begun has ended, and all has been looked at once more."""
        turns = self.turns + 6
        await until(lambda: self.turns >= turns)


@asynccontextmanager
async def running(files: CountedFiles, journal: Journal, every_s: float = 0.001) -> AsyncIterator[Running]:
    """It ends as by a kill, but what a thread does is done."""
    life = Running(files, journal, every_s)
    task = asyncio.create_task(life.archiving.run())
    try:
        yield life
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.to_thread(life.archiving._thread.shutdown)
        life._thread.shutdown()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_slice_node.adapters.archiving.ARCHIVE_RETRY_MS", 5)


async def test_what_the_archive_refused_is_archived_first_after_the_node_began_again() -> None:
    """Nothing knew of it: what came later was archived, and it only behind the next checkpoint."""
    files = CountedFiles()
    journal = open_journal(files)
    append(journal, 3)
    async with running(files, journal):
        await until(lambda: files.has() == ["1"])
        files.refuses = True
        append(journal, 3)
        await until(lambda: len(journal.closed(5)) == 1 and journal.segment_count == 3)
        append(journal, 3)
    files.refuses = False
    journal = open_journal(files)
    append(journal, 3)
    async with running(files, journal):
        await until(lambda: len(archived_records(files, ARCHIVE)) == 12)
    assert files.has() == ["1", "4", "7"]


async def test_a_full_segment_is_archived_before_one_that_is_closed_by_its_age() -> None:
    """It waited for a checkpoint."""
    files = CountedFiles()
    journal = open_journal(files)
    while journal.segment_count < 4:
        append(journal, 4)
    async with running(files, journal) as life:
        await until(lambda: len(archived_records(files, ARCHIVE)) == journal.next_lsn - 1)
        assert life.archiving.figures.archived == 4
        assert journal.first_lsn == 1, "no checkpoint has it"


async def test_those_that_wait_are_told_while_the_archive_takes_nothing() -> None:
    """It said "0 wait" where segments had been closed by their age."""
    files = CountedFiles()
    files.refuses = True
    journal = open_journal(files)
    append(journal, 3)
    async with running(files, journal) as life:
        await until(lambda: life.archiving.figures.failures >= 2)
        told = "the archive takes no segments, and 1 wait on the slice's disk to be put or found there: "
        assert told in life.archiving.trouble
        append(journal, 3)
        await life.turned()
        assert life.archiving.figures.waiting == 1, "the next one is not closed before the archive took this one"
        while journal.segment_count < 4:
            append(journal, 4)
        await life.turned()
        assert life.archiving.figures.waiting == 3
        life.archiving.release(journal.next_lsn)
        await life.turned()
        assert life.archiving.figures.waiting == 3 and journal.first_lsn == 1
        files.refuses = False
        await until(lambda: not life.archiving.figures.waiting and not life.archiving.trouble)
        await until(lambda: len(archived_records(files, ARCHIVE)) == journal.next_lsn - 1)
        figures = life.archiving.figures
    assert figures.archived == 4


def many_segments(files: CountedFiles, count: int) -> Journal:
    journal = open_journal(files)
    for _ in range(count):
        append(journal, 3)
        journal.seal()
    append(journal, 1)
    return journal


async def test_a_look_tells_what_the_archive_has_and_it_is_not_asked_again() -> None:
    """Names and lengths: of a segment that it has only the beginning of, it gets the rest."""
    files = CountedFiles()
    journal = many_segments(files, 60)
    closed = [segment for segment, _ in journal.closed(journal.next_lsn)]
    archive = Archive(ARCHIVE, files)
    for segment in closed[:50]:
        archive.put(segment.path)
    whole = files.read(ARCHIVE / closed[20].path.name)
    file = files._seen[ARCHIVE / closed[20].path.name]
    file.seen = file.disk = bytearray(whole[: len(whole) * 2 // 3])
    files.listed = files.read_files = 0
    async with running(files, journal) as life:
        await until(lambda: life.archiving.figures.archived == 12)
        await life.turned()
        asked = (files.listed, files.read_files)
        assert asked == (1, 1 + 60 + 12), "its last; each that is closed, and once more where it lacks something"
        await life.turned()
        assert (files.listed, files.read_files) == asked, "nothing is new"
        assert life.archiving.figures.archived == 12
        assert files.read(ARCHIVE / closed[20].path.name) == whole
    assert len(archived_records(files, ARCHIVE)) == journal.next_lsn - 1


async def test_what_is_released_meanwhile_is_released_while_many_segments_go_to_the_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal_slice_node.adapters.archiving.ARCHIVE_TURN_SEGMENTS", 4)
    files = CountedFiles()
    journal = many_segments(files, 30)
    released: dict[int, int] = {}
    """How many segments the archive had when the journal let go of what is below an LSN."""
    release = journal.release

    def noted(below_lsn: int) -> None:
        released[below_lsn] = len(files.has())
        release(below_lsn)

    monkeypatch.setattr(journal, "release", noted)
    async with running(files, journal) as life:
        await until(lambda: len(files.has()) >= 2)
        life.archiving.release(16)
        asked = len(files.has())
        await until(lambda: journal.first_lsn == 16)
        assert released[16] <= max(asked, 5) + 8 < 30
        await until(lambda: len(archived_records(files, ARCHIVE)) == 91)


async def test_a_stop_archives_and_releases_what_was_closed_by_its_age_and_refused() -> None:
    files = CountedFiles()
    files.refuses = True
    journal = open_journal(files)
    append(journal, 3)
    life = Running(files, journal, 0.001)
    task = asyncio.create_task(life.archiving.run())
    await until(lambda: life.archiving.figures.failures >= 1)
    task.cancel()
    files.refuses = False
    await life.archiving.finish(3)
    assert len(archived_records(files, ARCHIVE)) == 3
    assert journal.first_lsn == journal.next_lsn == 4


@pytest.mark.parametrize("seed", range(8))
async def test_the_archive_never_has_a_hole_whatever_it_refuses_and_whenever_the_node_ends(seed: int) -> None:
    """Each rename in the archive is looked at (CountedFiles)."""
    random = Random(seed)
    files, released = CountedFiles(), 1
    files.links = random.random() < 0.5
    for _ in range(12):
        journal = open_journal(files, released - 1)
        files.refuses, files.takes = random.random() < 0.3, random.choice((0, 1, 2, 4, 1 << 60))
        async with running(files, journal) as life:
            for _ in range(random.randint(1, 8)):
                append(journal, random.randint(1, 12))
                if random.random() < 0.3:
                    await life.turned()
                if random.random() < 0.2:
                    released = max(released, journal.next_lsn - random.randint(0, 20))
                    life.archiving.release(released)
        files = copy_of(files, random)
    files.refuses, files.takes = False, 1 << 60
    journal = open_journal(files, released - 1)
    async with running(files, journal):
        await until(lambda: len(archived_records(files, ARCHIVE)) == journal.next_lsn - 1)


def copy_of(files: CountedFiles, random: Random) -> CountedFiles:
    """What is found after a kill, or after a loss of power."""
    if random.random() < 0.5:
        return files
    found = CountedFiles(files.after_power_loss(random)._disk)
    found.links = files.links
    return found
