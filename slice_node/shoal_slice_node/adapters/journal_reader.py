"""Reading a journal: its segments, its tail, its records.

Belongs here: what a start-up or a replay may believe. Not here: repair and writing (journal_files).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shoal_contract.errors import OutOfRange
from shoal_contract.journal_record import Record
from shoal_slice_node.adapters.files import DiskFiles, Files
from shoal_slice_node.adapters.journal_segment import (
    SUFFIX,
    SegmentScan,
    damaged,
    first_lsn_of,
    proves_synced,
)


class Segment(NamedTuple):
    first_lsn: int
    path: Path


class Tail(NamedTuple):
    """Where the journal ends: which segment, and `position` in it. `clean`: only zeros follow there."""

    segment_index: int
    position: int
    next_lsn: int
    clean: bool


@dataclass(frozen=True)
class SegmentSummary:
    """For operators. `state`: whole, tail (zeros or a torn batch follow), damaged (see `end_position`)."""

    name: str
    first_lsn: int
    last_lsn: int
    records: int
    batches: int
    end_position: int
    file_bytes: int
    state: str


def list_segments(files: Files, folder: Path) -> list[Segment]:
    """Ascending by first LSN."""
    names = (name for name in files.names(folder) if name.endswith(SUFFIX))
    return sorted(Segment(first_lsn_of(name), folder / name) for name in names)


def find_tail(files: Files, segments: Sequence[Segment]) -> Tail:
    """The last segment that has anything sound, and its end; what follows was never acknowledged.

    A segment is begun only when all before it has been synced, so what is wrong in an earlier one is damage, and
    `read_records` says so. Raises Corrupt when what follows the end proves that more had been there."""
    later: list[bytes] = []
    for index in range(len(segments) - 1, -1, -1):
        data = files.read(segments[index].path)
        scan = SegmentScan(data, segments[index].first_lsn)
        scan.run()
        if scan.position or index == 0:
            break
        later.append(data)
    else:
        raise AssertionError("no segments")
    clean = scan.rest_is_zeros()
    if (not clean and proves_synced(data, scan.position, scan.expected_lsn)) or any(
        proves_synced(other, 0, scan.expected_lsn) for other in later
    ):
        raise damaged(segments[index].path, scan.position, scan.expected_lsn)
    return Tail(index, scan.position, scan.expected_lsn, clean)


def read_records(files: Files, segments: Sequence[Segment], from_lsn: int, end_lsn: int) -> Iterator[Record]:
    """Records with from_lsn <= lsn < end_lsn, in order. Raises OutOfRange if the journal begins later, Corrupt when a
    record before end_lsn is not sound. Holds one segment in memory."""
    if from_lsn >= end_lsn:
        return
    if not segments or segments[0].first_lsn > from_lsn:
        begins = segments[0].first_lsn if segments else end_lsn
        raise OutOfRange(f"journal begins at LSN {begins}; asked from {from_lsn}", limit=begins, value=from_lsn)
    ends = [*(segment.first_lsn for segment in segments[1:]), end_lsn]
    for segment, end in zip(segments, ends, strict=True):
        if end <= from_lsn:
            continue
        scan = SegmentScan(files.read(segment.path), segment.first_lsn)
        for record in scan:
            if record.lsn >= end:
                break
            if record.lsn >= from_lsn:
                yield record
        if scan.expected_lsn < end:
            raise damaged(segment.path, scan.position, scan.expected_lsn)


def inspect_journal(folder: Path) -> Iterator[SegmentSummary]:
    """Every segment, ascending. Changes nothing; raises nothing for damage."""
    files = DiskFiles()
    segments = list_segments(files, folder)
    nexts: list[int | None] = [*(segment.first_lsn for segment in segments[1:]), None]
    for segment, following in zip(segments, nexts, strict=True):
        data = files.read(segment.path)
        scan = SegmentScan(data, segment.first_lsn)
        records = scan.run()
        if scan.expected_lsn == following:
            state = "whole"
        else:
            lost = following is not None or proves_synced(data, scan.position, scan.expected_lsn)
            state = "damaged" if lost else "tail"
        last = scan.expected_lsn - 1
        name = segment.path.name
        yield SegmentSummary(name, segment.first_lsn, last, records, scan.marks, scan.position, len(data), state)
