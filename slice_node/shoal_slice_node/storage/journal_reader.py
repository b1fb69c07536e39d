"""Reads a journal: its segments, its tail, its records.

Belongs here: what a start-up or a replay may rely on. Not here: repair and writing (journal_repair, journal_files).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shoal_contract.errors import OutOfRange
from shoal_contract.journal_record import Record
from shoal_slice_node.storage.files import DiskFiles, Files
from shoal_slice_node.storage.journal_segment import SegmentScan, Skipped, damaged, first_lsn_of


class Segment(NamedTuple):
    first_lsn: int
    path: Path


class Tail(NamedTuple):
    """Says where the journal ends: in which segment, and at which `position`. `clean`: only zeros follow. `last_mark`:
    where its last batch begins; everything before it had been synced."""

    segment_index: int
    position: int
    next_lsn: int
    clean: bool
    last_mark: int
    nonce: bytes
    identity: bytes


OnSkipped = Callable[[Path, Skipped], None]
"""A function that is told of damaged records that nothing needs."""


def _say_nothing(path: Path, skipped: Skipped) -> None:
    pass


@dataclass(frozen=True)
class SegmentSummary:
    """Describes one segment for operators. `state`: whole, tail (zeros or a torn batch follow), damaged (see
    `end_position`). `set_aside`: the number of records that an operator had set aside."""

    name: str
    first_lsn: int
    last_lsn: int
    records: int
    batches: int
    end_position: int
    file_bytes: int
    state: str
    set_aside: int
    identity: str


def list_segments(files: Files, folder: Path) -> list[Segment]:
    """Returns the segments in `folder`, ascending by first LSN. Files with other names are ignored."""
    found = []
    for name in files.names(folder):
        try:
            found.append(Segment(first_lsn_of(name), folder / name))
        except ValueError:
            continue
    return sorted(found)


def find_tail(
    files: Files, segments: Sequence[Segment], checkpoint_lsn: int = 0, on_skipped: OnSkipped = _say_nothing
) -> Tail:
    """Returns the last segment with anything sound, and its end; what follows the end was never acknowledged.

    A segment is begun only when everything before it has been synced. So a bad record in an earlier segment is damage,
    and `read_records` raises for it. Damaged records up to `checkpoint_lsn` are skipped: nothing needs them. Raises
    Corrupt when the bytes after the end prove that more records had been synced."""
    later: list[SegmentScan] = []
    for index in range(len(segments) - 1, -1, -1):
        scan = SegmentScan(files.read(segments[index].path), segments[index].first_lsn, checkpoint_lsn + 1)
        scan.run()
        if not scan.empty or scan.head is None or index == 0:
            break
        later.append(scan)
    else:
        raise AssertionError("no segments")
    path = segments[index].path
    for skipped in scan.skipped:
        on_skipped(path, skipped)
    clean = scan.rest_is_zeros()
    lost = not clean and scan.proves_synced(scan.expected_lsn)
    if not lost and scan.head is not None and any(other.proves_synced(scan.expected_lsn) for other in later):
        raise damaged(segments[index + 1].path, later[-1].position, scan.expected_lsn)
    if lost or scan.head is None:
        raise damaged(path, scan.position, scan.expected_lsn)
    head = scan.head
    return Tail(index, scan.position, scan.expected_lsn, clean, scan.last_mark, head.nonce, head.identity)


def read_records(
    files: Files, segments: Sequence[Segment], from_lsn: int, end_lsn: int, needed_lsn: int = 0
) -> Iterator[Record]:
    """Yields records with from_lsn <= lsn < end_lsn, in order. Raises OutOfRange if the journal begins later, Corrupt
    if a record below end_lsn is not sound, unless it is below `needed_lsn`. Holds one segment in memory."""
    if from_lsn >= end_lsn:
        return
    if not segments or segments[0].first_lsn > from_lsn:
        begins = segments[0].first_lsn if segments else end_lsn
        raise OutOfRange(f"journal begins at LSN {begins}; asked from {from_lsn}", limit=begins, value=from_lsn)
    ends = [*(segment.first_lsn for segment in segments[1:]), end_lsn]
    for segment, end in zip(segments, ends, strict=True):
        if end <= from_lsn:
            continue
        scan = SegmentScan(files.read(segment.path), segment.first_lsn, max(from_lsn, needed_lsn))
        for record in scan:
            if record.lsn >= end:
                break
            if record.lsn >= from_lsn:
                yield record
        if scan.expected_lsn < end:
            raise damaged(segment.path, scan.position, scan.expected_lsn)


def inspect_journal(folder: Path) -> Iterator[SegmentSummary]:
    """Yields a summary of every segment, ascending. Changes nothing; raises nothing for damage."""
    files = DiskFiles()
    segments = list_segments(files, folder)
    nexts: list[int | None] = [*(segment.first_lsn for segment in segments[1:]), None]
    for segment, following in zip(segments, nexts, strict=False):
        data = files.read(segment.path)
        scan = SegmentScan(data, segment.first_lsn)
        records = set_aside = 0
        for record in scan:
            records += 1
            set_aside += bool(record.flags)
        if scan.expected_lsn == following:
            state = "whole"
        else:
            lost = following is not None or scan.proves_synced(scan.expected_lsn)
            state = "damaged" if lost else "tail"
        yield SegmentSummary(
            segment.path.name,
            segment.first_lsn,
            scan.expected_lsn - 1,
            records,
            scan.marks,
            scan.position,
            len(data),
            state,
            set_aside,
            "" if scan.head is None else scan.head.identity.decode("utf-8", "replace"),
        )
