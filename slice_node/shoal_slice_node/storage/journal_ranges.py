"""Reads ranges of a journal's records as bytes: for followers, which append them as they are, and for a cut.

A range is whole records one after the other, as they lie in the file, without the batch marks between them: marks are
valid only in their own segment (journal_segment), and the journal that appends a range writes marks of its own.

Belongs here: reading and checking ranges. Not here: appending and cutting (journal_files), the stream between nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from shoal_contract.errors import Malformed, OutOfRange
from shoal_contract.journal_record import HEADER, Record, decode_record
from shoal_slice_node.storage.disk_errors import typed_error
from shoal_slice_node.storage.files import Files
from shoal_slice_node.storage.journal_reader import Segment
from shoal_slice_node.storage.journal_segment import BATCH, HEAD, Head, SegmentScan, damaged
from shoal_slice_node.storage.limits import RAW_BYTES_MAX, RAW_PLACES_MAX


class RawRange(NamedTuple):
    """Holds the bytes of the records first_lsn to last_lsn. No records: b"", and last_lsn is one below first_lsn."""

    data: bytes
    first_lsn: int
    last_lsn: int


class RawReader:
    """Reads ranges, and remembers where the last ones ended: a follower asks next for what comes then, which must not
    cost a look at the whole segment."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._places: OrderedDict[int, tuple[int, int]] = OrderedDict()
        """LSN -> the first LSN of its segment, and the position where its record or a mark before it begins."""

    def forget(self) -> None:
        """Forgets all places. Must be called when records are cut."""
        self._places.clear()

    def read(self, segments: Sequence[Segment], from_lsn: int, end_lsn: int, max_bytes: int) -> RawRange:
        """Returns the records from `from_lsn` on, below `end_lsn`, as many whole ones as fit `max_bytes`; always one if
        there is one, however large it is. Raises OutOfRange, Corrupt, ResourceExhausted."""
        if not 1 <= max_bytes <= RAW_BYTES_MAX:
            text = f"{max_bytes} bytes asked for; a range has 1 to {RAW_BYTES_MAX}"
            raise OutOfRange(text, subject="max_bytes", limit=RAW_BYTES_MAX, value=max_bytes)
        check_within(from_lsn, segments[0].first_lsn, end_lsn)
        parts: list[bytes] = []
        lsn, left = from_lsn, max_bytes
        while lsn < end_lsn:
            index = segment_of(segments, lsn)
            end = segments[index + 1].first_lsn if index + 1 < len(segments) else end_lsn
            before, lsn = lsn, self._read_segment(segments[index], lsn, end, left, not parts, parts)
            left = max_bytes - sum(map(len, parts))
            if lsn < end or lsn == before or left <= 0:
                break
        return RawRange(b"".join(parts), from_lsn, lsn - 1)

    def _read_segment(
        self, segment: Segment, lsn: int, end_lsn: int, max_bytes: int, at_least_one: bool, parts: list[bytes]
    ) -> int:
        """Adds to `parts` the records of one segment, lsn <= LSN < end_lsn. Returns the LSN after the last one."""
        data = _bytes_of(self._files, segment)
        scan = SegmentScan(data, segment.first_lsn, lsn)
        first_lsn, position = self._places.get(lsn, (0, 0))
        if first_lsn == segment.first_lsn:
            scan.position, scan.expected_lsn = position, lsn
        taken, span = 0, (0, 0)
        reached = lsn
        for record in scan:
            if record.lsn < lsn:
                continue
            begin, size = begin_of(scan, record), HEADER.size + len(record.payload)
            if record.lsn >= end_lsn or (taken + size > max_bytes and (taken or not at_least_one)):
                break
            if span[1] != begin:  # A mark is in between.
                parts.append(bytes(data[slice(*span)]))
                span = begin, begin
            span = span[0], begin + size
            taken += size
            reached = record.lsn + 1
            if reached == end_lsn:
                break
        else:
            raise damaged(segment.path, scan.position, scan.expected_lsn)
        parts.append(bytes(data[slice(*span)]))
        self._remember(reached, segment.first_lsn, span[1])
        return reached

    def _remember(self, lsn: int, segment_lsn: int, position: int) -> None:
        if position:
            self._places[lsn] = segment_lsn, position
            self._places.move_to_end(lsn)
        while len(self._places) > RAW_PLACES_MAX:
            self._places.popitem(last=False)


def _bytes_of(files: Files, segment: Segment) -> bytes:
    """Returns what a segment's file has. Raises Corrupt, ResourceExhausted."""
    try:
        return files.read(segment.path)
    except OSError as error:
        raise typed_error(error, segment.path) from error


def segment_of(segments: Sequence[Segment], lsn: int) -> int:
    """Returns the index of the segment that has this LSN; it must not be below the first."""
    return bisect_right(segments, lsn, key=attrgetter("first_lsn")) - 1


def begin_of(scan: SegmentScan, record: Record) -> int:
    """Returns the position of the record that a scan has just given."""
    return scan.position - HEADER.size - len(record.payload)


def check_within(from_lsn: int, first_lsn: int, next_lsn: int) -> None:
    """Checks that a range may begin at `from_lsn`: it is kept, or the next to come. Raises OutOfRange."""
    if from_lsn < first_lsn:
        text = f"journal begins at LSN {first_lsn}; asked from {from_lsn}"
        raise OutOfRange(text, subject="lsn", limit=first_lsn, value=from_lsn)
    if from_lsn > next_lsn:
        text = f"journal ends at LSN {next_lsn - 1}; asked from {from_lsn}"
        raise OutOfRange(text, subject="lsn", limit=next_lsn, value=from_lsn)


def check_raw(data: bytes, next_lsn: int) -> int:
    """Checks a range that came from elsewhere: whole sound records, from `next_lsn` on, without a gap. Returns the last
    LSN. Raises Malformed, OutOfRange; the range is then of no use."""
    position, lsn = 0, next_lsn
    while position < len(data):
        found = decode_record(data, position)
        if found is None or found[0].kind in (BATCH, HEAD):
            what = "no whole, sound record" if found is None else "a mark or a head"
            text = f"range of {len(data)} bytes: {what} at byte {position}, where LSN {lsn} should be"
            raise Malformed(text, subject="journal range", position=position, value=lsn)
        if found[0].lsn != lsn:
            text = f"range of {len(data)} bytes: LSN {found[0].lsn} at byte {position}, where {lsn} should be"
            raise OutOfRange(text, subject="lsn", limit=lsn, value=found[0].lsn)
        position, lsn = found[1], lsn + 1
    if lsn == next_lsn:
        raise Malformed("range without records", subject="journal range", value=next_lsn)
    return lsn - 1


def read_up_to(files: Files, segment: Segment, lsn: int, needed_lsn: int) -> tuple[Head, bytes]:
    """Returns the head of the segment that has `lsn`, and its bytes before this record. Damage below `needed_lsn` is
    passed over. Raises Corrupt, ResourceExhausted."""
    data = _bytes_of(files, segment)
    scan = SegmentScan(data, segment.first_lsn, needed_lsn)
    for record in scan:
        if record.lsn == lsn:
            assert scan.head is not None
            return scan.head, bytes(data[: begin_of(scan, record)])
    raise damaged(segment.path, scan.position, scan.expected_lsn)
