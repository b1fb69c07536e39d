"""A journal has space again when its next segment has its place, and not before (operator brief 3, M3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.adapters import journal_room
from shoal_slice_node.adapters.journal_room import JournalRoom
from shoal_slice_node.storage.journal_files import Journal

from .faulty_files import FaultyFiles
from .journal_steps import FOLDER, SEGMENT_BYTES, Inline, append, open_journal

FULL = "the disk of its journal is full: changes are refused until there is room"


class Watched:
    """A journal with its room; `looks` counts how often the journal was asked for its next segment."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.looks = 0
        self.room = JournalRoom(journal, self._at_once)
        self.refusal: ResourceExhausted | None = None

    def _at_once(self, work: Callable[[], object]) -> asyncio.Future[object]:
        self.looks += 1
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        future.set_result(work())
        return future

    def append(self, records: int, frees: bool = False) -> bool:
        """Returns whether the batch was taken."""
        try:
            append(self.journal, records, frees=frees)
        except ResourceExhausted as error:
            self.refusal = self.room.refused(error)
            return False
        self.room.taken()
        return True

    async def after_looks(self, count: int) -> None:
        wanted = self.looks + count
        async with asyncio.timeout(10):
            while self.looks < wanted:  # noqa: ASYNC110 - the room's task does it
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_room, "JOURNAL_ROOM_LOOK_MS", 0)


async def test_a_small_batch_in_the_rest_of_a_segment_is_no_space_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    files = FaultyFiles()
    files.free_bytes = SEGMENT_BYTES
    watched = Watched(open_journal(files))
    task = asyncio.create_task(watched.room.run())
    while watched.append(20):
        pass
    while watched.append(1):
        pass
    assert not watched.append(1), "the rest of the segment is kept"
    assert watched.append(1, frees=True), "for what frees room"
    await watched.after_looks(5)
    assert watched.room.trouble == f"{FULL}, but for {journal_room.FREEING}" and watched.room.short
    assert watched.journal.allocated_bytes == SEGMENT_BYTES, "what could not be made is not allocated"
    files.free_bytes = 4 * SEGMENT_BYTES
    await watched.after_looks(2)
    await asyncio.sleep(0)
    assert watched.room.trouble == "" and watched.room.short is None and "has disk space again" in caplog.text
    assert watched.append(4)
    task.cancel()


async def test_a_start_on_a_full_disk_says_so_at_once() -> None:
    files = FaultyFiles()
    files.free_bytes = SEGMENT_BYTES
    watched = Watched(open_journal(files))
    while watched.append(1):
        pass
    watched.journal.close()
    started = Watched(open_journal(files))
    assert not started.room.trouble
    task = asyncio.create_task(started.room.run())
    await started.after_looks(2)
    assert started.room.trouble.startswith(FULL) and started.room.short
    files.free_bytes = 4 * SEGMENT_BYTES
    await started.after_looks(2)
    await asyncio.sleep(0)
    assert not started.room.trouble and started.append(1)
    task.cancel()


def test_the_next_segment_leaves_a_checkpoint_its_room() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    journal.next_segment.leave_bytes = 1_000
    files.free_bytes = SEGMENT_BYTES + 999
    assert not journal.has_next_segment() and not journal.next_segment.begun
    with pytest.raises(ResourceExhausted, match="a checkpoint needs what is free"):
        for _ in range(100):
            append(journal, 20)
    assert journal.segment_count == 1
    journal.next_segment.leave_bytes = 0
    append(journal, 20)
    assert journal.segment_count == 2


async def test_a_segment_made_before_the_disk_was_full_is_no_space_again() -> None:
    files = FaultyFiles()
    watched = Watched(open_journal(files))
    task = asyncio.create_task(watched.room.run())
    while not watched.journal.has_next_segment():
        assert watched.append(1)
    assert watched.room.refused(ResourceExhausted("no disk space", subject="disk bytes"))
    await watched.after_looks(5)
    assert watched.room.trouble == FULL
    assert watched.append(1)
    await watched.after_looks(1)
    await asyncio.sleep(0)
    assert watched.room.trouble == ""
    task.cancel()


async def test_those_who_send_hear_which_disk_is_full_and_that_nothing_was_stored() -> None:
    files = FaultyFiles()
    files.free_bytes = SEGMENT_BYTES
    identity = DataIdentity("", "s07", "n01", "1").encode()
    watched = Watched(Journal.open(FOLDER, 0, files, SEGMENT_BYTES, Inline(), identity))
    while watched.append(4):
        pass
    assert watched.refusal is not None and watched.refusal.subject == "disk bytes"
    assert watched.refusal.message == "the disk of slice s07 is full: the change was not stored"
    files_short = ResourceExhausted("no file can be opened for /journal", subject="open files")
    assert watched.room.refused(files_short) is files_short, "it is no full disk"
