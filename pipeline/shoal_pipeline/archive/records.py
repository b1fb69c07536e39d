"""Reads the records of a span. Damage in it is raised as Corrupt, or skipped and counted.

An archived segment is whole and holds at least one record. So three things are damage: anything but zeros after its
last sound record, an end before the next segment begins, and a last segment without records (a copy that broke off).
After damage, reading goes on at the next sound record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import STX, Record, decode_record
from shoal_pipeline.archive.folder import Span, by_slice
from shoal_pipeline.limits import OWNERSHIP_LOOK_RECORDS
from shoal_slice_node.core.apply.records import Kind, decode_ownership
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_segment import SegmentScan, damaged

_STX = bytes((STX,))


@dataclass(frozen=True, slots=True)
class Damage:
    """Describes damage that was skipped. `records`: how many LSNs from `lsn` on are lost; 0: unknown. `time_ms`: of the
    last record before, else of the next; 0: the segment has none."""

    lsn: int
    records: int
    position: int
    bytes: int
    time_ms: int


def read_span(span: Span, skip_damage: bool) -> Iterator[Record | Damage]:
    """Yields records in order of LSN. Raises Corrupt(file, position) unless `skip_damage`."""
    data = DiskFiles().read(span.path)
    scan = SegmentScan(data, span.first_lsn)
    time_ms = 0
    while True:
        for record in scan:
            if span.to_lsn is not None and record.lsn >= span.to_lsn:
                return
            time_ms = record.time_ms
            if record.lsn >= span.from_lsn:
                yield record
        if _is_whole(span, scan):
            return
        if not skip_damage:
            _refuse(span, scan)
        damage, going_on = _resynchronised(span, data, scan, time_ms)
        if damage.lsn + damage.records > span.from_lsn or not damage.records:
            yield damage
        if not going_on:
            return


def find_partitions(spans: Iterable[Span]) -> int | None:
    """Returns how many partitions the cluster has, from the first record that says so; None if none of the first few
    does."""
    for those in by_slice(spans).values():
        for record in islice(read_span(those[0], skip_damage=True), OWNERSHIP_LOOK_RECORDS):
            if isinstance(record, Record) and record.kind == Kind.OWNERSHIP:
                return len(decode_ownership(record.payload)[1])
    return None


def _is_whole(span: Span, scan: SegmentScan) -> bool:
    if span.to_lsn is None:
        return scan.rest_is_zeros() and scan.expected_lsn > span.first_lsn
    return scan.expected_lsn >= span.to_lsn


def _refuse(span: Span, scan: SegmentScan) -> NoReturn:
    if span.to_lsn is not None and scan.rest_is_zeros():
        raise Corrupt(
            f"a segment is missing: {span.path} ends before LSN {scan.expected_lsn}, the next begins at {span.to_lsn}",
            subject=str(span.path),
            position=scan.position,
            value=scan.expected_lsn,
        )
    if scan.expected_lsn == span.first_lsn and scan.rest_is_zeros():
        raise Corrupt(
            f"{span.path} holds no record: a copy that broke off? A segment begins with LSN {span.first_lsn}",
            subject=str(span.path),
            value=span.first_lsn,
        )
    raise damaged(span.path, scan.position, scan.expected_lsn)


def _resynchronised(span: Span, data: bytes, scan: SegmentScan, time_ms: int) -> tuple[Damage, bool]:
    """Sets the scan to the next sound record. Returns the damage, and False if there is no such record."""
    begin, lost = scan.position, scan.expected_lsn
    position = data.find(_STX, begin + 1)
    while position >= 0:
        found = decode_record(data, position)
        if found is not None and found[0].lsn >= lost:
            scan.position, scan.expected_lsn = position, found[0].lsn
            return Damage(lost, found[0].lsn - lost, begin, position - begin, time_ms or found[0].time_ms), True
        position = data.find(_STX, position + 1)
    records = span.to_lsn - lost if span.to_lsn is not None else 0
    return Damage(lost, records, begin, len(data) - begin, time_ms), False
