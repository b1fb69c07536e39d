"""Ranges of records as bytes: what a leader's journal gives, a follower's takes; what is not sound is not taken."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from shoal_contract.errors import Corrupt, Malformed, OutOfRange, TooLarge
from shoal_contract.journal_record import HEADER, Record, decode_record, encode_record
from shoal_slice_node.storage import journal_ranges
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_ranges import check_raw
from shoal_slice_node.storage.journal_segment import BATCH, HEAD, SegmentScan, batch_mark, encode_head
from shoal_slice_node.storage.limits import RAW_BYTES_MAX, RAW_PLACES_MAX

from .faulty_files import FaultyFiles
from .journal_steps import FOLDER, KIND, SEGMENT_BYTES, Inline, append, check, open_journal, payload_of


def filled(files: FaultyFiles, segments: int = 4) -> Journal:
    journal = open_journal(files)
    while journal.segment_count < segments:
        append(journal, 5)
    append(journal, 5)
    return journal


def follower_of(files: FaultyFiles) -> Journal:
    """Its segments are of another size than the leader's."""
    return Journal.open(FOLDER, 0, files, 5 * SEGMENT_BYTES, Inline())


def bytes_of(first_lsn: int, last_lsn: int, epoch: int = 1) -> bytes:
    return b"".join(encode_record(KIND, lsn, epoch, 1000, payload_of(lsn)) for lsn in range(first_lsn, last_lsn + 1))


@pytest.mark.parametrize("max_bytes", [1, 40, 333, 1000, 5000, RAW_BYTES_MAX])
def test_a_follower_comes_to_the_same_records_whatever_the_size_of_its_ranges(max_bytes: int) -> None:
    leader = filled(FaultyFiles())
    files = FaultyFiles()
    follower = follower_of(files)
    while follower.next_lsn < leader.next_lsn:
        found = leader.raw(follower.next_lsn, max_bytes)
        assert found.first_lsn == follower.next_lsn <= found.last_lsn
        assert found.data == bytes_of(found.first_lsn, found.last_lsn)
        assert len(found.data) <= max_bytes or found.first_lsn == found.last_lsn
        if found.last_lsn + 1 < leader.next_lsn:
            following = HEADER.size + len(payload_of(found.last_lsn + 1))
            assert len(found.data) + following > max_bytes, "more would have fitted"
        assert follower.append_raw(found.data) == found.last_lsn
        if Random(follower.next_lsn).random() < 0.1:
            files = files.after_power_loss(Random(1))
            follower = follower_of(files)
    assert list(follower.records(1)) == list(leader.records(1))
    check(follower, 1, leader.next_lsn - 1, 0)
    assert leader.raw(leader.next_lsn, 100) == (b"", leader.next_lsn, leader.next_lsn - 1), "nothing is new"


def test_a_range_may_begin_anywhere_and_ends_where_the_journal_does() -> None:
    leader = filled(FaultyFiles())
    last = leader.next_lsn - 1
    for lsn in Random(3).sample(range(1, last + 1), last):
        assert leader.raw(lsn, RAW_BYTES_MAX) == (bytes_of(lsn, last), lsn, last)
    assert len(leader._raw._places) <= RAW_PLACES_MAX


def test_a_range_that_goes_on_where_the_last_one_ended_does_not_read_the_segment_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = filled(FaultyFiles())
    begins: list[int] = []

    class Scan(SegmentScan):
        def __iter__(self) -> Iterator[Record]:
            begins.append(self.position - self.begin)
            return super().__iter__()

    monkeypatch.setattr(journal_ranges, "SegmentScan", Scan)
    lsn, segments = 1, set()
    while lsn < leader.next_lsn:
        segments.add(max(one.first_lsn for one in leader._segments if one.first_lsn <= lsn))
        for _ in range(2):  # Two followers at the same place.
            found = leader.raw(lsn, 400)
        lsn = found.last_lsn + 1
    assert begins.count(0) <= 2 * 2 * len(segments) < len(begins) // 2


def test_a_range_in_a_journal_that_was_cut_has_what_came_after_the_cut() -> None:
    leader = filled(FaultyFiles())
    found = leader.raw(1, 1000)
    leader.truncate(found.last_lsn - 2, 0)
    append(leader, 4, epoch=2)
    assert leader.raw(found.last_lsn - 2, 1000).data == bytes_of(found.last_lsn - 2, found.last_lsn + 1, epoch=2)
    with pytest.raises(OutOfRange):
        leader.raw(found.last_lsn + 3, 1000)


def test_what_is_released_or_not_there_yet_and_sizes_beyond_the_limit_are_out_of_range() -> None:
    leader = filled(FaultyFiles())
    released = leader.closed(leader.next_lsn)[0][1]
    leader.release(released)
    for lsn, limit in ((released - 1, released), (0, released), (leader.next_lsn + 1, leader.next_lsn)):
        with pytest.raises(OutOfRange) as caught:
            leader.raw(lsn, 1000)
        assert (caught.value.limit, caught.value.value) == (limit, lsn)
    for max_bytes in (0, -1, RAW_BYTES_MAX + 1):
        with pytest.raises(OutOfRange, match="bytes asked for"):
            leader.raw(released, max_bytes)


def test_damage_in_a_range_is_told_with_its_file_and_not_sent() -> None:
    files = FaultyFiles()
    leader = filled(files)
    files.flip(files.paths()[0], 300)
    with pytest.raises(Corrupt) as caught:
        leader.raw(1, RAW_BYTES_MAX)
    assert caught.value.subject == str(files.paths()[0])
    later = leader.closed(leader.next_lsn)[0][1]
    assert leader.raw(later, 100).first_lsn == later


def test_a_range_cut_or_changed_at_any_byte_is_not_taken() -> None:
    files = FaultyFiles()
    follower = open_journal(files)
    append(follower, 2)
    good = bytes_of(3, 6)
    whole = {0, *(end for lsn in range(3, 7) for end in [len(bytes_of(3, lsn))])}
    for size in range(len(good)):
        if size not in whole:
            with pytest.raises(Malformed, match=r"no whole, sound record at byte \d+, where LSN [3-6] should be"):
                follower.append_raw(good[:size])
    for position in range(len(good)):
        with pytest.raises(Malformed):
            follower.append_raw(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
    for bad in (b"", good + b"\0", b"\0" * 100, good[1:], good[8:]):
        with pytest.raises(Malformed):
            follower.append_raw(bad)
    check(follower, 1, 2, 0)
    check(open_journal(files), 1, 2, 0)
    assert follower.append_raw(good) == 6


@pytest.mark.parametrize(
    ("data", "wrong_lsn"),
    [
        (bytes_of(2, 4), 2),
        (bytes_of(4, 5), 4),
        (bytes_of(3, 4) + bytes_of(6, 7), 6),
        (bytes_of(3, 4) + bytes_of(4, 5), 4),
        (bytes_of(4, 4) + bytes_of(3, 3), 4),
    ],
    ids=["again", "a gap before", "a gap", "twice", "in another order"],
)
def test_a_range_in_another_order_is_not_taken(data: bytes, wrong_lsn: int) -> None:
    follower = open_journal(FaultyFiles())
    append(follower, 2)
    with pytest.raises(OutOfRange) as caught:
        follower.append_raw(data)
    assert caught.value.value == wrong_lsn
    check(follower, 1, 2, 0)


def test_marks_and_heads_in_a_range_are_not_taken_for_records() -> None:
    for forged in (
        batch_mark(1, 0, b"12345678"),
        encode_head(b"12345678", b"of s01"),
        encode_record(BATCH, 2, 1, 1, b""),
        encode_record(HEAD, 2, 1, 1, b""),
    ):
        for data in (forged, bytes_of(1, 1) + forged, forged + bytes_of(1, 1)):
            with pytest.raises(Malformed, match="a mark or a head"):
                check_raw(data, 1)


def test_a_range_beyond_a_batch_is_too_large_before_it_is_read() -> None:
    follower = open_journal(FaultyFiles())
    with pytest.raises(TooLarge):
        follower.append_raw(bytes(5000))
    assert follower.next_lsn == 1


def test_a_record_larger_than_what_is_asked_for_comes_alone() -> None:
    leader = open_journal(FaultyFiles())
    leader.append(encode_record(KIND, 1, 1, 1, bytes(2000)) + bytes_of(2, 3), 1, 3)
    found = leader.raw(1, 100)
    assert (found.first_lsn, found.last_lsn, len(found.data)) == (1, 1, 2000 + HEADER.size)
    read = decode_record(found.data, 0)
    assert read is not None and read[0].payload == bytes(2000)
    assert leader.raw(2, 10).last_lsn == 2


def test_records_that_an_operator_set_aside_stay_so() -> None:
    leader, follower = open_journal(FaultyFiles()), open_journal(FaultyFiles())
    leader.append(encode_record(KIND, 1, 1, 1, b"x", flags=1), 1, 1)
    follower.append_raw(leader.raw(1, 1000).data)
    assert [record.flags for record in follower.records(1)] == [1]
