"""A journal that is cut: at each step of a failing disk, and what is asked for wrongly."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from shoal_contract.errors import Corrupt, OutOfRange, ResourceExhausted, ShoalError
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_files import Journal

from .faulty_files import FaultyFiles, PowerLoss
from .journal_steps import SEGMENT_BYTES, append, check, open_journal


def filled(files: FaultyFiles, segments: int = 4) -> Journal:
    journal = open_journal(files)
    while journal.segment_count < segments:
        append(journal, 5)
    append(journal, 5)
    return journal


def epochs(journal: Journal) -> list[int]:
    return [record.epoch for record in journal.records(journal.first_lsn)]


def places(journal: Journal) -> list[int]:
    """Where a cut may be: at the ends of segments and of batches, and within them."""
    firsts = [segment.first_lsn for segment in journal._segments]
    found = {lsn for first in firsts for lsn in (first - 1, first, first + 1, first + 5, first + 7)}
    return sorted(lsn for lsn in {*found, journal.next_lsn - 1} if 1 <= lsn < journal.next_lsn)


def test_what_is_cut_is_gone_and_what_is_kept_goes_on() -> None:
    for lsn in places(filled(FaultyFiles())):
        files = FaultyFiles()
        journal = filled(files)
        journal.truncate(lsn, 0)
        assert journal.next_lsn == lsn
        check(journal, 1, lsn - 1, 0)
        reopened = open_journal(files.after_power_loss(Random(lsn)))
        assert reopened.next_lsn == lsn
        check(reopened, 1, lsn - 1, 0)
        for one in (journal, reopened):
            for _ in range(30):
                append(one, 5, epoch=2)
            assert epochs(one) == [1] * (lsn - 1) + [2] * 150
            one.close()
        check(open_journal(files), 1, lsn + 149, 0)


@pytest.mark.parametrize("made_ahead", [False, True])
def test_a_cut_survives_a_power_loss_at_every_step(made_ahead: bool) -> None:
    """A start after the loss finds all that is kept, and of the rest a beginning without a gap; then it cuts again."""
    sample = filled(FaultyFiles())
    for lsn in places(sample):
        whole = FaultyFiles()
        steps = _cut(whole, lsn, made_ahead, 1 << 60)
        assert steps > 3
        for step in range(1, steps + 1):
            random = Random(lsn * 1000 + step)
            files = FaultyFiles()
            with pytest.raises(PowerLoss):
                _cut(files, lsn, made_ahead, step)
            for life in range(2, 5):
                files = files if random.random() < 0.3 else files.after_power_loss(random)
                files.steps_left = random.choice((1, 2, 3, 5, 9, 1 << 60))
                try:
                    journal = open_journal(files)
                    assert lsn <= journal.next_lsn
                    check(journal, 1, lsn - 1, 1 << 20)
                    journal.truncate(lsn, 0)
                    append(journal, 3, epoch=life)
                except PowerLoss:
                    continue
            files = files.after_power_loss(random)
            journal = open_journal(files)
            journal.truncate(lsn, 0)
            append(journal, 3, epoch=9)
            journal = open_journal(files.after_power_loss(random))
            assert epochs(journal) == [1] * (lsn - 1) + [9] * 3


def _cut(files: FaultyFiles, lsn: int, made_ahead: bool, steps: int) -> int:
    """Returns the steps of a cut alone."""
    journal = filled(files)
    while made_ahead and not journal._next.begun:
        append(journal, 5)
    before = files.steps_done
    files.steps_left = steps
    journal.truncate(lsn, 0)
    return files.steps_done - before


def test_what_a_checkpoint_holds_or_the_journal_has_not_cannot_be_cut() -> None:
    files = FaultyFiles()
    journal = filled(files)
    released = journal.closed(journal.next_lsn)[0][1]
    journal.release(released)
    last = journal.next_lsn - 1
    for lsn, checkpoint_lsn, limit in (
        (released - 1, 0, released),
        (0, 0, released),
        (-1, 0, released),
        (last + 2, 0, last + 1),
        (released + 3, released + 3, released + 4),
        (last + 1, last + 1, last + 2),
    ):
        with pytest.raises(OutOfRange) as caught:
            journal.truncate(lsn, checkpoint_lsn)
        assert (caught.value.limit, caught.value.value) == (limit, lsn)
    journal.truncate(last + 1, last)
    assert journal.next_lsn == last + 1, "nothing was to be cut"
    journal.truncate(released + 4, released + 3)
    check(open_journal(files, released + 3), released, released + 3, 0)


def test_a_full_disk_or_no_file_leaves_the_journal_as_it_was() -> None:
    files = FaultyFiles()
    files.free_bytes = 4 * SEGMENT_BYTES
    journal = filled(files, 4)
    last = journal.next_lsn - 1
    with pytest.raises(ResourceExhausted, match="disk space"):
        journal.truncate(3, 0)
    files.free_bytes = 1 << 30
    files.open_errors["open"] = errno.EMFILE
    with pytest.raises(ResourceExhausted, match="open files"):
        journal.truncate(3, 0)
    files.open_errors.clear()
    check(journal, 1, last, 0)
    append(journal, 4)
    check(open_journal(files), 1, last + 4, 0)
    journal.truncate(3, 0)
    check(open_journal(files), 1, 2, 0)


def test_a_failed_sync_while_a_cut_is_prepared_leaves_the_journal_as_it_was() -> None:
    files = FaultyFiles()
    journal = filled(files)
    last = journal.next_lsn - 1
    files.sync_error = True
    with pytest.raises(Corrupt):
        journal.truncate(3, 0)
    append(journal, 2)
    check(open_journal(files.after_power_loss(Random(1))), 1, last + 2, 0)


def test_a_journal_stops_when_its_folder_fails_in_the_middle_of_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    journal = filled(files)

    def failing(path: Path, to: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files, "rename", failing)
        with pytest.raises(Corrupt, match="cutting the journal failed"):
            journal.truncate(3, 0)
    with pytest.raises(Corrupt, match="cutting the journal failed"):
        append(journal, 1)
    with pytest.raises(Corrupt, match="cutting the journal failed"):
        journal.truncate(3, 0)
    journal.close()
    assert files.open_files == 0
    reopened = open_journal(files)
    check(reopened, 1, 2, 1 << 20)
    reopened.truncate(3, 0)
    check(open_journal(files), 1, 2, 0)


@pytest.mark.parametrize(("code", "raised"), [(errno.EIO, Corrupt), (errno.EMFILE, ResourceExhausted)])
def test_a_file_that_cannot_be_read_is_a_typed_error_and_nothing_is_cut(code: int, raised: type[ShoalError]) -> None:
    files = FaultyFiles()
    journal = filled(files)
    last = journal.next_lsn - 1
    files.open_errors["read"] = code
    with pytest.raises(raised):
        journal.truncate(3, 0)
    with pytest.raises(raised):
        journal.raw(3, 1000)
    files.open_errors.clear()
    append(journal, 1)
    check(journal, 1, last + 1, 0)


def test_damage_below_the_cut_stops_it_unless_a_checkpoint_has_it() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    for _ in range(4):
        append(journal, 3)
    files.flip(files.paths()[0], 200)
    with pytest.raises(Corrupt):
        journal.truncate(11, 0)
    check_lsn = 9
    journal.truncate(10, check_lsn)
    reopened = open_journal(files, check_lsn)
    assert reopened.next_lsn == 10
    append(reopened, 2, epoch=2)
    check(open_journal(files, check_lsn), 10, 11, 0)


def test_the_archive_keeps_what_it_had_of_a_segment_that_is_cut(tmp_path: Path) -> None:
    """Its file may be the journal's own, by a hard link."""
    folder = tmp_path / "journal"
    journal = open_journal(DiskFiles(), folder=folder)
    append(journal, 5)
    path = next(folder.glob("*.journal"))
    (tmp_path / "archived").hardlink_to(path)
    before = path.read_bytes()
    journal.truncate(3, 0)
    append(journal, 1, epoch=2)
    assert (tmp_path / "archived").read_bytes() == before != path.read_bytes()
    assert path.stat().st_size == SEGMENT_BYTES
    journal.close()
    check(open_journal(DiskFiles(), folder=folder), 1, 3, 0)
