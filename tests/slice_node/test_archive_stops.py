"""What a node says at its stop to be archived is archived; and what is not is archived later, whatever ended before."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_reader import list_segments

from .archive_steps import ARCHIVE, Life, RefusingFiles, archived_records, copy_archive, said
from .faulty_files import FaultyFiles, Node
from .journal_steps import FOLDER, append, open_journal
from .node_process import NodeProcess


@pytest.fixture(autouse=True)
def informed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def stopped_while_refused(files: RefusingFiles) -> None:
    """Leaves a journal of 5 records, which the archive lacks, and an empty segment behind them."""
    files.refuses = True
    life = Life(files)
    append(life.journal, 5)
    await life.stop()
    files.refuses = False
    assert [segment.first_lsn for segment in list_segments(files, FOLDER)] == [1, 6]


async def after_a_life() -> RefusingFiles:
    """The files of a node that wrote five records, archived them and stopped."""
    files = RefusingFiles()
    life = Life(files)
    append(life.journal, 5)
    await life.stop()
    return files


async def test_what_was_refused_at_a_stop_is_archived_at_a_later_stop_without_a_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = RefusingFiles()
    await stopped_while_refused(files)
    assert said(caplog) is None
    life = Life(files, checkpoint_lsn=5)
    await life.stop()
    assert [record.lsn for record in archived_records(files, ARCHIVE)] == [1, 2, 3, 4, 5]
    assert said(caplog) == (1, 5)
    assert life.journal.first_lsn == 6
    await Life(files, checkpoint_lsn=5).stop()
    assert said(caplog) == (1, 5), "an idle life knows it too"


async def test_what_was_refused_at_a_stop_is_told_again_while_it_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    files = RefusingFiles()
    await stopped_while_refused(files)
    for _ in range(3):
        files.refuses = True
        await Life(files, checkpoint_lsn=5).stop()
        assert "the archive takes no segments" in caplog.text and "only in the journal" in caplog.text
        assert said(caplog) is None


@asynccontextmanager
async def running(life: Life, every_s: float) -> AsyncIterator[None]:
    life.archiving._every_s = every_s
    task = asyncio.create_task(life.archiving.run())
    try:
        yield
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        life.kill()


@pytest.mark.parametrize("every_s", [0, 0.001])
async def test_what_was_refused_at_a_stop_is_archived_while_the_next_life_runs(every_s: float) -> None:
    """As soon as the checkpoint of its start is told, or by its age."""
    files = RefusingFiles()
    await stopped_while_refused(files)
    life = Life(files, checkpoint_lsn=5)
    async with running(life, every_s), asyncio.timeout(30):
        if not every_s:
            life.archiving.release(6)
        while len(archived_records(files, ARCHIVE)) < 5:  # noqa: ASYNC110 - another task's doing
            await asyncio.sleep(0.002)


async def test_an_archive_of_another_cluster_is_never_called_complete(caplog: pytest.LogCaptureFixture) -> None:
    """Also where its records have the same LSNs, and once nothing of this cluster is left in the journal."""
    files = RefusingFiles()
    life = Life(files)
    append(life.journal, 5)
    for lsn in (5, 6):
        foreign = FaultyFiles()
        stranger = Life(foreign, identity=b"of another s01")
        append(stranger.journal, lsn)
        await stranger.stop()
        assert said(caplog) == (1, lsn)
        place = Path(f"/archive-{lsn}")
        copy_archive(foreign, files, place)
    await life.stop()
    assert said(caplog) == (1, 5)
    for place in (Path("/archive-5"), Path("/archive-6"), Path("/none")):
        await Life(files, place, 5).stop()
        assert "and the journal has them no more" in caplog.text
        assert said(caplog) is None
    life = Life(files, checkpoint_lsn=5)
    append(life.journal, 1)
    await life.stop()
    assert said(caplog) == (1, 6)
    life = Life(files, checkpoint_lsn=6)
    files.open_errors["read"] = errno.EMFILE
    await life.archiving.finish(6)
    assert "could not be looked at" in caplog.text and said(caplog) is None
    files.open_errors.clear()
    life.kill()
    await Life(files, checkpoint_lsn=6).stop()
    assert said(caplog) == (1, 6)


async def test_an_archive_that_knows_of_records_which_a_restored_copy_lacks_is_not_called_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = await after_a_life()
    restored = RefusingFiles({path: Node(files.read(path)) for path in files.paths() if path.parent == FOLDER})
    life = Life(files, checkpoint_lsn=5)
    append(life.journal, 2)
    await life.stop()
    assert said(caplog) == (1, 5)
    copy_archive(files, restored, ARCHIVE)
    caplog.clear()
    await Life(restored, checkpoint_lsn=5).stop()
    assert said(caplog) is None


async def test_an_archive_that_lacks_older_records_is_told_with_its_first(caplog: pytest.LogCaptureFixture) -> None:
    """It was given later, or the oldest segments in it were removed."""
    files, later = RefusingFiles(), Path("/later")
    for place, first in ((ARCHIVE, 1), (later, 4), (later, 4), (ARCHIVE, 10), (later, 13)):
        found = list_segments(files, FOLDER)
        life = Life(files, place, found[-1].first_lsn - 1 if found else 0)
        append(life.journal, 3)
        last = life.journal.next_lsn - 1
        await life.stop()
        assert said(caplog) == (first, last)
    files.remove(ARCHIVE / "0000000000000001.journal")
    life = Life(files, checkpoint_lsn=last)
    append(life.journal, 1)
    await life.stop()
    assert said(caplog) == (last + 1, last + 1)


async def test_an_archive_that_lost_its_segments_meanwhile_is_not_called_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = await after_a_life()
    assert said(caplog) == (1, 5)
    for path in [path for path in files.paths() if path.parent == ARCHIVE]:
        files.remove(path)
    await Life(files, checkpoint_lsn=5).stop()
    assert said(caplog) is None


@pytest.mark.parametrize("seed", range(30))
async def test_what_is_said_is_archived_whatever_the_archive_refuses_and_however_lives_end(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    files, checkpoint_lsn = RefusingFiles(), 0
    for _ in range(20):
        files.refuses = random.random() < 0.5
        life = Life(files, checkpoint_lsn=checkpoint_lsn)
        life.archiving._every_s = random.choice((0, 1 << 30))
        last = life.journal.next_lsn - 1
        assert len(archived_records(files, ARCHIVE)) >= life.journal.first_lsn - 1, "a record is in neither"
        life.archiving.release(checkpoint_lsn + 1)
        await life.archiving._attempt()
        for _ in range(random.choice((0, 0, 1, 4))):
            append(life.journal, random.randint(1, 6))
            last = life.journal.next_lsn - 1
            if life.archiving._every_s and random.random() < 0.5:
                await life.archiving._journal_says(life.archiving._seal)
                await life.archiving._attempt()
        ended = random.choice(("stop", "stop", "kill", "power"))
        caplog.clear()
        if ended == "stop":
            await life.stop()
            checkpoint_lsn = last
            archived = [record.lsn for record in archived_records(files, ARCHIVE)]
            told = said(caplog)
            assert told in (None, (1, last))
            assert told is None or archived == list(range(1, last + 1))
            assert told or files.refuses
        else:
            life.kill()
            if ended == "power":
                found = files.after_power_loss(random)
                files = RefusingFiles(found._disk)
    files.refuses = False
    life = Life(files, checkpoint_lsn=checkpoint_lsn)
    last = life.journal.next_lsn - 1
    await life.stop()
    assert [record.lsn for record in archived_records(files, ARCHIVE)] == list(range(1, last + 1))
    assert said(caplog) == (1, last)


async def test_a_node_archives_at_its_start_what_its_last_stop_could_not(tmp_path: Path) -> None:
    """It runs on without a change."""
    data, archive = tmp_path / "data", tmp_path / "archive"
    place = archive / "s01" / "n01"
    node = await NodeProcess.start(data, "--archive", str(archive))
    async with node.stub() as stub:
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
    archive.write_text("no folder")
    assert await node.stop() == 0
    archive.unlink()
    node = await NodeProcess.start(data, "--archive", str(archive))
    try:
        async with asyncio.timeout(30):
            while not list(place.glob("*.journal")):  # noqa: ASYNC110 - another process's doing
                await asyncio.sleep(0.02)
    finally:
        await node.kill()
    records = archived_records(DiskFiles(), place)
    assert [record.lsn for record in records] == list(range(1, len(records) + 1)) and len(records) >= 2


def test_a_segment_before_one_with_only_the_mark_of_a_clean_stop_is_closed_for_good() -> None:
    """No start writes on in it, also after a power loss."""
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 5)
    assert journal.seal() is not None
    assert journal.closed(6) == []
    journal.close()
    journal = open_journal(files)
    assert [(segment.first_lsn, end) for segment, end in journal.closed(6)] == [(1, 6)]
    assert journal.closed(5) == []
    for seed in range(20):
        found = files.after_power_loss(Random(seed))
        reopened = open_journal(found)
        append(reopened, 1)
        assert [segment.first_lsn for segment in list_segments(found, FOLDER)] == [1, 6]
