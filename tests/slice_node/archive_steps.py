"""What a test's archive holds."""

from __future__ import annotations

from pathlib import Path

from shoal_contract.journal_record import Record
from shoal_slice_node.storage.files import Files
from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.journal_segment import SegmentScan


def archived_records(files: Files, folder: Path) -> list[Record]:
    """As a reader takes them: each segment up to where the next begins."""
    segments = list_segments(files, folder)
    ends = [*(segment.first_lsn for segment in segments), 1 << 62][1:]
    return [
        record
        for segment, end in zip(segments, ends, strict=True)
        for record in SegmentScan(files.read(segment.path), segment.first_lsn)
        if record.lsn < end
    ]
