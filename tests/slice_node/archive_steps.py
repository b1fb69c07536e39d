"""A node's journal with an archive, one life after the other, and what the archive holds."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shoal_contract.journal_record import Record
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.files import Files
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.journal_segment import SegmentScan

from .faulty_files import FaultyFiles
from .journal_steps import FOLDER, SEGMENT_BYTES, Inline

ARCHIVE = Path("/archive")
SAID = re.compile(r"the archive .* has all records from LSN (\d+) to (\d+)$")


def archived_records(files: Files, folder: Path) -> list[Record]:
    """As a reader takes them: each segment up to where the next begins."""
    segments = list_segments(files, folder)
    ends = [*(segment.first_lsn for segment in segments), 1 << 62][1:]
    return [
        record
        for segment, end in zip(segments, ends, strict=True)
        for record in SegmentScan(files.read(segment.path), segment.first_lsn)
        if record.lsn < end
    ]


class RefusingFiles(FaultyFiles):
    """Its archive takes nothing while `refuses`."""

    refuses = False

    def rename(self, path: Path, to: Path) -> None:
        if self.refuses and to.parent == ARCHIVE:
            raise OSError(errno.EIO, "faulty rename")
        super().rename(path, to)


class Life:
    """One life of a node's journal and archiving. All that it has is checkpointed when it stops."""

    def __init__(
        self, files: FaultyFiles, archive: Path = ARCHIVE, checkpoint_lsn: int = 0, identity: bytes = b"of s01"
    ) -> None:
        self.journal = Journal.open(FOLDER, checkpoint_lsn, files, SEGMENT_BYTES, Inline(), identity)
        self._thread = ThreadPoolExecutor(1)
        self.archiving = Archiving(Archive(archive, files), self.journal, self._in_journal_thread)

    def _in_journal_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def stop(self) -> None:
        await self.archiving.finish(self.journal.next_lsn - 1)
        self.journal.close()
        self.kill()

    def kill(self) -> None:
        self.archiving._thread.shutdown()
        self._thread.shutdown()


def said(caplog: pytest.LogCaptureFixture) -> tuple[int, int] | None:
    """Which records the life that ended said to be archived, the first and the last; and forgets it."""
    found = [match for record in caplog.records if (match := SAID.search(record.getMessage()))]
    caplog.clear()
    return (int(found[0][1]), int(found[0][2])) if found else None


def copy_archive(files: FaultyFiles, to: FaultyFiles, place: Path) -> None:
    for path in [path for path in files.paths() if path.parent == ARCHIVE]:
        file = to.create(place / path.name)
        file.write_at(0, files.read(path))
        file.close()
