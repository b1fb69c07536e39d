"""The journal on a disk that fails: what was acknowledged is there, what is damaged is said, nothing is made up."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest

from shoal_contract.errors import Corrupt, OutOfRange, ResourceExhausted
from shoal_contract.journal_record import encode_record
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_reader import inspect_journal
from shoal_slice_node.storage.journal_segment import MARK_BYTES, NONCE_BYTES, batch_mark, read_head

from .faulty_files import FaultyFiles, PowerLoss
from .journal_steps import FOLDER, KIND, SEGMENT_BYTES, Inline, append, check, open_journal


@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_records_survive_a_power_loss_at_every_step(seed: int) -> None:
    """One run without a loss tells the steps; then one run for each step, with losses during recovery too."""
    whole = FaultyFiles()
    _work(whole, Random(seed), {"acknowledged": 0, "released": 1})
    assert whole.steps_done > 100
    for step in range(1, whole.steps_done):
        random = Random(seed * 100_000 + step)
        files = FaultyFiles()
        files.steps_left = step
        progress = {"acknowledged": 0, "released": 1}
        with pytest.raises(PowerLoss):
            _work(files, Random(seed), progress)
        for life in range(2, 6):
            files = files if random.random() < 0.3 else files.after_power_loss(random)  # only killed, or worse
            files.steps_left = random.choice((1, 2, 3, 5, 1 << 60))
            try:
                journal = open_journal(files, progress["released"] - 1)
                check(journal, journal.first_lsn, progress["acknowledged"], 6)
                assert journal.first_lsn <= progress["released"]
                progress["acknowledged"] = journal.next_lsn - 1  # a reader may have seen it
                for _ in range(3):
                    append(journal, random.randint(1, 6), epoch=life)
                    progress["acknowledged"] = journal.next_lsn - 1
            except PowerLoss:
                continue
        files = files.after_power_loss(random)
        journal = open_journal(files, progress["released"] - 1)
        check(journal, journal.first_lsn, progress["acknowledged"], 6)


def _work(files: FaultyFiles, random: Random, progress: dict[str, int]) -> None:
    journal = open_journal(files)
    for _ in range(60):
        append(journal, random.randint(1, 6))
        progress["acknowledged"] = journal.next_lsn - 1
        if random.random() < 0.1:
            progress["released"] = max(1, journal.next_lsn - 20)
            journal.release(progress["released"])
    journal.close()


def test_a_flipped_bit_below_a_later_batch_is_damage_with_its_place() -> None:
    for position in (0, 45, 60, 75, 200):
        files = FaultyFiles()
        journal = open_journal(files)
        for _ in range(4):
            append(journal, 3)
        path = files.paths()[0]
        files.flip(path, position)
        with pytest.raises(Corrupt) as caught:
            open_journal(files)
        assert caught.value.subject == str(path) and caught.value.position <= position


def test_a_flipped_bit_in_the_last_batch_is_cut_after_a_crash_and_damage_after_a_clean_stop() -> None:
    for clean in (False, True):
        files = FaultyFiles()
        journal = open_journal(files)
        append(journal, 2)
        append(journal, 2)
        if clean:
            journal.close()
        end = len(files.read(files.paths()[0]).rstrip(b"\0")) - (MARK_BYTES if clean else 0)
        files.flip(files.paths()[0], end - 3)
        if clean:
            with pytest.raises(Corrupt):
                open_journal(files)
        else:
            assert open_journal(files).next_lsn == 4


def test_damage_in_an_earlier_segment_stops_the_replay_and_not_one_above_it() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    while len(files.paths()) < 4:
        append(journal, 5)
    files.flip(files.paths()[0], 300)
    journal = open_journal(files)
    with pytest.raises(Corrupt):
        list(journal.records(1))
    from_lsn = int(files.paths()[1].name.split(".")[0], 16)
    check(journal, from_lsn, journal.next_lsn - 1, 0)


def test_a_missing_segment_is_damage() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    while len(files.paths()) < 4:
        append(journal, 5)
    files.remove(files.paths()[1])
    with pytest.raises(Corrupt):
        list(open_journal(files).records(1))


def test_a_full_disk_refuses_the_batch_and_takes_it_later() -> None:
    files = FaultyFiles()
    files.free_bytes = 2 * SEGMENT_BYTES
    journal = open_journal(files)
    with pytest.raises(ResourceExhausted):
        for _ in range(100):
            append(journal, 4)
    refused_lsn = journal.next_lsn
    with pytest.raises(ResourceExhausted):
        append(journal, 4)
    check(open_journal(files), 1, refused_lsn - 1, 0)
    files.free_bytes = 1 << 30
    append(journal, 4)
    check(open_journal(files), 1, refused_lsn + 3, 0)


def test_a_batch_half_written_on_a_full_disk_leaves_nothing() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 4)
    before = files.read(files.paths()[0])
    files.write_error = errno.ENOSPC
    with pytest.raises(Corrupt):  # not even zeros can be written over it
        append(journal, 4)
    files.write_error = None
    with pytest.raises(Corrupt):
        append(journal, 4)
    reopened = open_journal(files)
    assert reopened.next_lsn >= 5 and before.rstrip(b"\0") in files.read(files.paths()[0])


def test_what_was_written_of_a_refused_batch_does_not_come_back_after_a_power_loss() -> None:
    for seed in range(20):
        files = FaultyFiles()
        journal = open_journal(files)
        append(journal, 4)
        files.write_error, files.zeros_fit = errno.ENOSPC, True
        with pytest.raises(ResourceExhausted):
            append(journal, 4)
        assert open_journal(files.after_power_loss(Random(seed))).next_lsn == 5


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_is_never_tried_again(code: int) -> None:
    """Thin volumes and quotas of NFS may say only then that there is no room."""
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 2)
    files.sync_error, files.sync_code = True, code
    for _ in range(2):
        with pytest.raises(Corrupt):
            append(journal, 2)
    journal.close()
    assert open_journal(files.after_power_loss(Random(1))).next_lsn == 3


def test_a_journal_that_misses_the_checkpoint_is_refused() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 5)
    with pytest.raises(Corrupt, match="ends at LSN 5, but the checkpoint is at 6"):
        open_journal(files, checkpoint_lsn=6)
    while len(files.paths()) < 3:
        append(journal, 5)
    first = journal.closed(journal.next_lsn)[0][1]
    assert journal.release(first) == 1
    with pytest.raises(Corrupt, match=f"begins at LSN {first}, but the checkpoint is at {first - 2}"):
        open_journal(files, checkpoint_lsn=first - 2)
    assert open_journal(files, checkpoint_lsn=first - 1).first_lsn == first
    with pytest.raises(OutOfRange):
        list(journal.records(first - 1))


def test_a_journal_folder_that_is_gone_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(Corrupt, match=r"has no segments, but the checkpoint is at 10.*volume not mounted"):
        open_journal(FaultyFiles(), checkpoint_lsn=10)


def test_what_a_message_says_is_never_taken_for_a_mark() -> None:
    """A torn batch whose payload holds a mark that says more was synced: it is cut, as any torn batch."""
    for nonce in (bytes(NONCE_BYTES), b"guessed!"):
        files = FaultyFiles()
        journal = open_journal(files)
        append(journal, 2)
        forged = batch_mark(1 << 40, (1 << 40) - 1, nonce)
        end = len(files.read(files.paths()[0]).rstrip(b"\0"))
        journal.append(encode_record(KIND, 3, 1, 1000, bytes(600) + forged), 3, 3)
        files.flip(files.paths()[0], end + MARK_BYTES + 60)
        reopened = open_journal(files)
        assert reopened.next_lsn == 3
        check(reopened, 1, 2, 0)


def test_damage_that_only_the_checkpoint_needs_is_passed_over() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    for _ in range(4):
        append(journal, 3)
    path = files.paths()[0]
    files.flip(path, 200)
    with pytest.raises(Corrupt) as caught:
        open_journal(files)
    damaged_lsn = int(caught.value.value or 0)
    assert damaged_lsn < 10
    reopened = open_journal(files, checkpoint_lsn=9)
    check(reopened, 10, 12, 0)
    append(reopened, 2)
    assert open_journal(files, checkpoint_lsn=9).next_lsn == 15


def test_after_a_failed_sync_a_restart_writes_the_last_batch_again() -> None:
    """The kernel calls dropped pages clean: what a restart reads from its cache, and only syncs, may not be on disk."""
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 2)
    files.sync_error = True
    with pytest.raises(Corrupt):
        append(journal, 2)
    believed = open_journal(files).next_lsn
    after = open_journal(files.after_power_loss(Random(3)), believed - 1)
    assert after.next_lsn == believed
    check(after, 1, believed - 1, 0)


@pytest.mark.parametrize("operation", ["create", "open"])
def test_a_limit_of_open_files_is_no_damage_and_passes(operation: str) -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    files.open_errors[operation] = errno.EMFILE
    with pytest.raises(ResourceExhausted, match="open files"):
        for _ in range(200):
            append(journal, 4)
    refused_lsn = journal.next_lsn
    files.open_errors.clear()
    append(journal, 4)
    assert open_journal(files).next_lsn == refused_lsn + 4
    check(open_journal(files), 1, refused_lsn + 3, 0)


def test_heads_say_whose_data_it_is() -> None:
    files = FaultyFiles()
    journal = Journal.open(FOLDER, 0, files, SEGMENT_BYTES, Inline(), identity=b"of s01")
    while len(files.paths()) < 3:
        append(journal, 5)
    heads = [read_head(files.read(path)) for path in files.paths()]
    assert [head.identity for head in heads if head is not None] == [b"of s01"] * 3
    assert len({head.nonce for head in heads if head is not None}) == 3
    assert Journal.open(FOLDER, 0, files, SEGMENT_BYTES, Inline(), identity=b"of s02").identity == b"of s01"


def test_released_segments_go_and_the_rest_reads_on(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    journal = open_journal(DiskFiles(), folder=folder)
    for _ in range(200):
        append(journal, 4)
    assert journal.release(500) > 1
    assert journal.first_lsn <= 500
    check(journal, 500, 800, 0)
    journal.close()
    check(open_journal(DiskFiles(), 600, folder), 500, 800, 0)
    summaries = list(inspect_journal(folder))
    assert [summary.state for summary in summaries] == ["whole"] * (len(summaries) - 1) + ["tail"]
    assert summaries[-1].last_lsn == 800


def test_a_sealed_journal_goes_on_in_a_new_segment_or_in_the_old_one_after_a_crash() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    assert journal.seal() is None
    append(journal, 5)
    sealed = journal.seal()
    assert sealed is not None and sealed[0].name == "0000000000000001.journal"
    assert journal.closed(6) == [], "the new segment is empty: a crash would have the old one written on"
    assert open_journal(files).next_lsn == 6
    journal = open_journal(files)
    append(journal, 1)
    journal.seal()
    append(journal, 1)
    assert [(segment.first_lsn, end) for segment, end in journal.closed(8)] == [(1, 7)]
    assert journal.release(7) == 1
    journal.close()
    reopened = open_journal(files, checkpoint_lsn=6)
    assert (reopened.first_lsn, reopened.next_lsn) == (7, 8)


@pytest.mark.parametrize("operation", ["open", "sync folder"])
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_a_segment_that_could_not_be_begun_leaves_nothing_that_a_start_stumbles_over(operation: str, code: int) -> None:
    """Refused at the change of segments; smaller batches go on, and later ones change segments again. Then the power
    goes."""
    for seed in range(20):
        files = FaultyFiles()
        journal = open_journal(files)
        while journal._position < SEGMENT_BYTES * 2 // 3:
            append(journal, 1)
        files.open_errors[operation] = code
        large = encode_record(1, journal.next_lsn, 1, 1_000, bytes(SEGMENT_BYTES // 2))
        with pytest.raises(ResourceExhausted):
            journal.append(large, journal.next_lsn, journal.next_lsn)
        if operation == "sync folder":
            with pytest.raises(ResourceExhausted):
                append(journal, 1)
        files.open_errors.clear()
        append(journal, 2)
        for _ in range(3):
            large = encode_record(1, journal.next_lsn, 1, 1_000, bytes(SEGMENT_BYTES // 2))
            journal.append(large, journal.next_lsn, journal.next_lsn)
        last = journal.next_lsn - 1
        for found in (files, files.after_power_loss(Random(seed))):
            reopened = open_journal(found)
            assert [record.lsn for record in reopened.records(1)] == list(range(1, last + 1))


def test_a_segment_that_cannot_be_sealed_for_lack_of_room_does_not_fill_with_marks() -> None:
    files = FaultyFiles()
    journal = open_journal(files)
    append(journal, 2)
    files.free_bytes = 0
    written = journal.written_bytes
    for _ in range(3):
        with pytest.raises(ResourceExhausted):
            journal.seal()
    assert journal.written_bytes == written + MARK_BYTES
    files.free_bytes = 1 << 60
    append(journal, 1)
    assert journal.seal() is not None
    check(open_journal(files), 1, 3, 0)
