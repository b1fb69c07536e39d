"""An archive has one history: a node adds nothing to one that ends with another's segment, and calls no other whole."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import pytest

from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.known_archives import NAME, KnownArchives, LastArchived

from .archive_steps import ARCHIVE, Life, RefusingFiles, archived_records, copy_archive, said
from .faulty_files import FaultyFiles, Node, PowerLoss
from .journal_steps import FOLDER, append

ELSEWHERE = Path("/elsewhere")


@pytest.fixture(autouse=True)
def informed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def lived(files: FaultyFiles, records: int, archive: Path = ARCHIVE, epoch: int = 1) -> Life:
    """A life that writes so many records and stops; what is in its journal is checkpointed. `epoch` tells records of
    two histories apart."""
    found = list_segments(files, FOLDER)
    life = Life(files, archive, found[-1].first_lsn - 1 if found else 0)
    if records:
        append(life.journal, records, epoch)
    await life.stop()
    return life


async def lived_without_archive(files: FaultyFiles, records: int) -> None:
    """As `lived`, of a node that was started without an archive."""
    life = Life(files, checkpoint_lsn=list_segments(files, FOLDER)[-1].first_lsn - 1)
    append(life.journal, records)
    life.journal.seal()
    life.journal.release(life.journal.next_lsn)
    life.journal.close()
    life.kill()


def names_in(files: FaultyFiles, folder: Path) -> dict[str, bytes]:
    return {path.name: files.read(path) for path in files.paths() if path.parent == folder}


async def after_a_copy_went_on() -> RefusingFiles:
    """The files of a node with five records in its archive, to which a copy of its data added three."""
    files = RefusingFiles()
    await lived(files, 5)
    copy = RefusingFiles({path: Node(files.read(path)) for path in files.paths()})
    await lived(copy, 3, epoch=2)
    for path in [path for path in files.paths() if path.parent == ARCHIVE]:
        files.remove(path)
    copy_archive(copy, files, ARCHIVE)
    return files


@pytest.mark.parametrize("between", ["without an archive", "with another archive"])
async def test_an_archive_that_a_copy_went_on_with_to_the_same_lsn_is_not_called_complete_nor_added_to(
    between: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last segment has the same name, identity and nonce, and ends where the journal begins."""
    files = await after_a_copy_went_on()
    if between == "without an archive":
        await lived_without_archive(files, 3)
    else:
        await lived(files, 3, ELSEWHERE)
    caplog.clear()
    there = names_in(files, ARCHIVE)
    await lived(files, 0)
    assert said(caplog) is None, "an idle life"
    life = await lived(files, 2)
    assert names_in(files, ARCHIVE) == there, "both histories in one archive"
    assert said(caplog) is None
    assert "ends with" in life.archiving.trouble and str(ARCHIVE) in life.archiving.trouble
    assert life.journal.first_lsn == 9, "the journal keeps what is not archived"
    await lived(files, 1, ELSEWHERE)
    assert said(caplog) is not None, "another archive takes it"


@pytest.mark.parametrize("every_s", [0, 0.001])
async def test_nothing_is_added_to_an_archive_that_a_copy_wrote_in_a_segment_of(
    every_s: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy's segment begins as this one's and has its length: a look at its ends takes it for the same."""
    monkeypatch.setattr("shoal_slice_node.storage.archive.ARCHIVE_LOOK_BYTES", 64)
    files = RefusingFiles()
    life = Life(files)
    for _ in range(3):
        append(life.journal, 8)
    life.kill()
    copy = RefusingFiles({path: Node(files.read(path)) for path in files.paths()})
    ours, theirs = Life(files), Life(copy)
    append(ours.journal, 1, epoch=2)
    append(theirs.journal, 1, epoch=3)
    for one in (ours, theirs):
        one.journal.seal()
        append(one.journal, 1)
    theirs.archiving.release(theirs.journal.next_lsn - 1)
    await theirs.archiving._attempt()
    copy_archive(copy, files, ARCHIVE)
    there = names_in(files, ARCHIVE)
    assert there
    ours.archiving._every_s = every_s
    ours.archiving.release(1)
    await ours.archiving._attempt()
    await ours.stop()
    assert names_in(files, ARCHIVE) == there
    assert "other records than the journal" in ours.archiving.trouble and said(caplog) is None
    theirs.kill()


async def test_an_archive_that_ends_with_another_cluster_s_segment_gets_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was called complete from LSN 1, where the other cluster's begins."""
    files, foreign = RefusingFiles(), FaultyFiles()
    await lived(files, 5, ELSEWHERE)
    stranger = Life(foreign, identity=b"of another s01")
    append(stranger.journal, 5)
    await stranger.stop()
    copy_archive(foreign, files, ARCHIVE)
    caplog.clear()
    for records in (3, 0, 2):
        await lived(files, records)
        assert said(caplog) is None
        assert len(names_in(files, ARCHIVE)) == 1


async def test_an_archive_into_which_another_cluster_s_first_segment_came_is_called_complete_from_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, foreign = RefusingFiles(), FaultyFiles()
    await lived(files, 5, ELSEWHERE)
    await lived(files, 3)
    stranger = Life(foreign, identity=b"of another s01")
    append(stranger.journal, 5)
    await stranger.stop()
    copy_archive(foreign, files, ARCHIVE)
    caplog.clear()
    await lived(files, 0)
    assert said(caplog) == (6, 8)
    await lived(files, 2)
    assert said(caplog) == (6, 10)


async def test_a_node_that_was_moved_adds_to_its_archive_and_knows_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its data was copied after a stop, and the original did not go on. It had no archive for a while."""
    files = RefusingFiles()
    await lived(files, 5)
    files = RefusingFiles({path: Node(files.read(path)) for path in files.paths()})
    caplog.clear()
    await lived(files, 3)
    assert said(caplog) == (1, 8)
    await lived_without_archive(files, 2)
    await lived(files, 4)
    assert said(caplog) == (11, 14), "what happened without an archive is not there"
    assert [record.lsn for record in archived_records(files, ARCHIVE)] == [*range(1, 9), *range(11, 15)]


async def test_an_archive_is_known_whose_last_segment_grew_after_a_kill(caplog: pytest.LogCaptureFixture) -> None:
    """It was closed by its age, archived, and written on in by the next life, which had another archive."""
    files = RefusingFiles()
    await lived(files, 2)
    for killed in (True, False):
        life = Life(files, checkpoint_lsn=2)
        append(life.journal, 3)
        life.archiving._every_s = 0.000001
        await life.archiving._attempt()
        if killed:
            life.kill()
        else:
            caplog.clear()
            await life.stop()
    assert said(caplog) == (1, 8)
    await lived_without_archive(files, 2)
    await lived(files, 1)
    assert said(caplog) == (11, 11)


async def test_what_archives_had_last_is_forgotten_beyond_a_bound_and_such_an_archive_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = RefusingFiles()
    places = [Path(f"/archive-{number}") for number in range(20)]
    for place in places:
        await lived(files, 1, place)
    caplog.clear()
    await lived(files, 1, places[0])
    assert said(caplog) is None
    await lived(files, 1, places[-1])
    assert said(caplog) is not None


@pytest.mark.parametrize("slot", [0, 1])
async def test_a_journal_that_does_not_tell_what_its_archive_had_last_is_refused_by_it(
    slot: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The later change is in the first slot; the other one may be damaged."""
    files = RefusingFiles()
    await lived(files, 5)
    await lived(files, 5)
    path = FOLDER / "archives"
    for at in (slot, 1 - slot):
        files.flip(path, at * 512 + 40)
        caplog.clear()
        await lived(files, 0)
        kept = said(caplog) is not None
        assert kept == (at == slot == 1)


async def test_no_power_loss_makes_a_node_a_stranger_to_its_archive(caplog: pytest.LogCaptureFixture) -> None:
    """At each step of a stop, once with half of it archived by its age."""
    for every_s in (0, 0.000001):
        step = 0
        while True:
            step += 1
            files = RefusingFiles()
            await lived(files, 3)
            life = Life(files, checkpoint_lsn=3)
            life.archiving._every_s = every_s
            append(life.journal, 3)
            files.steps_left = step
            try:
                await life.archiving._attempt()
                append(life.journal, 2)
                await life.stop()
                break
            except PowerLoss:
                life.kill()
            random = Random(step)
            files = RefusingFiles(files.after_power_loss(random)._disk)
            if random.random() < 0.5:
                await lived_without_archive(files, 1)
            life = Life(files, checkpoint_lsn=list_segments(files, FOLDER)[0].first_lsn - 1)
            append(life.journal, 1)
            caplog.clear()
            await life.stop()
            assert said(caplog) is not None, (every_s, step, life.archiving.trouble)
        assert step > 20


async def test_a_disk_that_is_full_before_anything_was_archived_is_emptied_once_the_archive_takes_segments() -> None:
    """What an archive got last had no file then, and no room for one: nothing was ever released."""
    files = RefusingFiles()
    files.refuses = True
    life = Life(files)
    append(life.journal, 3)
    life.journal.seal()
    append(life.journal, 1)
    life.archiving.release(life.journal.next_lsn - 1)
    assert not await life.archiving._attempt()
    assert (FOLDER / NAME) in files.paths(), "made while there is room"
    assert not any(files.read(FOLDER / NAME))
    files.refuses = False
    assert await life.archiving._attempt()
    assert life.journal.first_lsn == 4
    life.kill()


async def test_an_archive_is_complete_though_a_kill_came_between_a_segment_and_its_note(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next life found the segment there, noted nothing, and began its count behind it."""
    files = RefusingFiles()
    await lived(files, 3)
    killed = Life(files, checkpoint_lsn=3)
    append(killed.journal, 3)
    killed.journal.seal()
    append(killed.journal, 1)
    killed.archiving.release(7)
    with monkeypatch.context() as patched, pytest.raises(PowerLoss):
        patched.setattr(KnownArchives, "note", _dies)
        await killed.archiving._attempt()
    killed.kill()
    life = Life(files, checkpoint_lsn=3)
    life.archiving._every_s = 0.000_001
    for _ in range(2):
        await life.archiving._attempt()
        append(life.journal, 1)
    caplog.clear()
    await life.stop()
    last = [record.lsn for record in archived_records(files, ARCHIVE)]
    assert last == list(range(1, last[-1] + 1))
    assert said(caplog) == (1, last[-1])


def _dies(*_: object) -> LastArchived:
    raise PowerLoss
