"""A journal segment: a preallocated file of records, and how far it is sound.

    <first lsn, 16 hex digits>.journal
        batch mark | record | record | ... | batch mark | record | ... | zeros to the end of the file
    batch mark: a record (shoal_contract.journal_record) of kind BATCH
        lsn      of the first record after it
        payload  u64 little-endian: everything up to this LSN had been synced when the mark was written

LSNs of records are dense: each is one above the one before, also from one segment to the next. Marks have none of
their own. A sound mark that says "synced up to n" proves that any record up to n was once whole on disk: that is how
damage is told from a batch torn by a power loss, whose sectors may have reached the disk in any order.

Belongs here: bytes of one segment. Not here: which segments there are (journal_reader), writing (journal_files).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import STX, Record, decode_record, encode_record

BATCH: Final = 0
"""The kind of batch marks; other kinds belong to whoever appends."""

SUFFIX: Final = ".journal"
SYNCED: Final = Struct("<Q")
_MARK_BEGINS: Final = Struct("<BBHI").pack(STX, BATCH, 0, SYNCED.size)


def segment_name(first_lsn: int) -> str:
    return f"{first_lsn:016x}{SUFFIX}"


def first_lsn_of(name: str) -> int:
    """Raises ValueError if it is not a segment's name."""
    if not name.endswith(SUFFIX):
        raise ValueError(name)
    return int(name.removesuffix(SUFFIX), 16)


def batch_mark(first_lsn: int, synced_lsn: int) -> bytes:
    return encode_record(BATCH, first_lsn, 0, 0, SYNCED.pack(synced_lsn))


class SegmentScan:
    """The sound beginning of a segment's bytes. While and after iterating: `position` is where the next record would
    begin, `expected_lsn` the one it would have, `marks` how many batches there were."""

    def __init__(self, data: bytes, first_lsn: int) -> None:
        self._data = data
        self.position = 0
        self.expected_lsn = first_lsn
        self.marks = 0

    def __iter__(self) -> Iterator[Record]:
        data, position, expected = self._data, self.position, self.expected_lsn
        while (found := decode_record(data, position)) is not None:
            record, position = found
            if record.lsn != expected:
                return
            self.position = position
            if record.kind == BATCH:
                self.marks += 1
                continue
            expected += 1
            self.expected_lsn = expected
            yield record

    def run(self) -> int:
        """To the end of what is sound; the number of records."""
        return sum(1 for _ in self)

    def rest_is_zeros(self) -> bool:
        step = 1 << 20
        zeros = bytes(step)
        for begin in range(self.position, len(self._data), step):
            block = self._data[begin : begin + step]
            if block != zeros[: len(block)]:
                return False
        return True


def proves_synced(data: bytes, position: int, lsn: int) -> bool:
    """Is there a sound batch mark at or after `position` that says that `lsn` had been synced?"""
    while (position := data.find(_MARK_BEGINS, position)) >= 0:
        found = decode_record(data, position)
        if found is not None and found[0].lsn > lsn and SYNCED.unpack(found[0].payload)[0] >= lsn:
            return True
        position += 1
    return False


def damaged(path: Path, position: int, lsn: int) -> Corrupt:
    return Corrupt(
        f"journal record {lsn} is damaged: {path}, byte {position}", subject=str(path), position=position, value=lsn
    )
