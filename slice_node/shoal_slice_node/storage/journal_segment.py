"""Defines a journal segment, a preallocated file of records, and finds out how much of it is sound.

    <first lsn, 16 hex digits>.journal
        head | batch mark | record | record | ... | batch mark | record | ... | zeros to the end of the file
    head: a record (shoal_contract.journal_record) of kind HEAD, lsn 0, at byte 0
        payload  nonce 8, random | identity of the data, JSON (shoal_contract.data_identity); may be empty
    batch mark: a record of kind BATCH
        lsn      of the first record after it
        payload  u64 little-endian: everything up to this LSN had been synced when the mark was written | nonce 8

LSNs of records are dense: each is one above the LSN before it, also from one segment to the next. Head and marks have
no LSN of their own. The head is on disk before the segment gets its name. A sound mark that says "synced up to n"
proves that all records up to n were once whole on disk. So damage can be told from a batch torn by a power loss, whose
sectors may have reached the disk in any order. A mark is valid only with its segment's nonce, so data from clients
cannot look like a mark.

Belongs here: bytes of one segment. Not here: which segments there are (journal_reader), writing (journal_files).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.errors import Corrupt
from shoal_contract.journal_record import HEADER, STX, Record, decode_record, encode_record

BATCH: Final = 0
"""The kind of batch marks."""

HEAD: Final = 255
"""The kind of a segment's head. The kinds between BATCH and HEAD are for the appended records."""

SUFFIX: Final = ".journal"
NONCE_BYTES: Final = 8
_SYNCED: Final = Struct(f"<Q{NONCE_BYTES}s")
_MARK_BEGINS: Final = Struct("<BBHI").pack(STX, BATCH, 0, _SYNCED.size)
MARK_BYTES: Final = HEADER.size + _SYNCED.size


class Head(NamedTuple):
    """Holds a segment's head. `identity`: encoded, b"" if the journal has none. `end`: the position where the segment's
    first mark begins."""

    nonce: bytes
    identity: bytes
    end: int


class Skipped(NamedTuple):
    """Describes damage that was skipped: the records from first_lsn up to, but not including, end_lsn, at
    `position`."""

    position: int
    first_lsn: int
    end_lsn: int


def segment_name(first_lsn: int) -> str:
    return f"{first_lsn:016x}{SUFFIX}"


def first_lsn_of(name: str) -> int:
    """Returns the first LSN in a segment's name. Raises ValueError if it is not a segment's name."""
    if not name.endswith(SUFFIX):
        raise ValueError(name)
    return int(name.removesuffix(SUFFIX), 16)


def encode_head(nonce: bytes, identity: bytes) -> bytes:
    return encode_record(HEAD, 0, 0, 0, nonce + identity)


def read_head(data: bytes) -> Head | None:
    """Returns the head of a segment; None: it has no sound one."""
    found = decode_record(data, 0)
    if found is None or found[0].kind != HEAD or len(found[0].payload) < NONCE_BYTES:
        return None
    payload = found[0].payload
    return Head(payload[:NONCE_BYTES], payload[NONCE_BYTES:], found[1])


def batch_mark(first_lsn: int, synced_lsn: int, nonce: bytes) -> bytes:
    return encode_record(BATCH, first_lsn, 0, 0, _SYNCED.pack(synced_lsn, nonce))


def synced_lsn_of(mark: Record, nonce: bytes) -> int | None:
    """Returns the LSN up to which, says a mark, everything had been synced; None: it is no mark of this segment.
    `nonce`: the segment's; b"": it is not known, and any nonce is accepted."""
    if mark.kind != BATCH or len(mark.payload) != _SYNCED.size:
        return None
    synced_lsn, found = _SYNCED.unpack(mark.payload)
    return int(synced_lsn) if nonce in (found, b"") else None


class SegmentScan:
    """Iterates over the records in the sound beginning of a segment's bytes. While and after iterating: `position` is
    where the next record would begin, `expected_lsn` the LSN that it would have, `marks` the number of batches so far,
    `last_mark` where the last of them begins. `head` None: the segment is damaged at its very beginning; to read on, a
    caller sets `position` behind the damage.

    `needed_lsn`: damage below it is skipped, where a later mark tells how many records were damaged, and is noted in
    `skipped`: nothing needs these records.
    """

    def __init__(self, data: bytes, first_lsn: int, needed_lsn: int = 0) -> None:
        self._data = data
        self._needed_lsn = needed_lsn
        self.head = read_head(data)
        self.begin = 0 if self.head is None else self.head.end
        self.position = self.begin
        self.last_mark = self.begin
        self.expected_lsn = first_lsn
        self.marks = 0
        self.skipped: list[Skipped] = []

    @property
    def empty(self) -> bool:
        """Returns whether nothing sound follows the head."""
        return self.position == self.begin

    def __iter__(self) -> Iterator[Record]:
        if self.head is None and not self.position:
            return
        data, position, nonce = self._data, self.position, b"" if self.head is None else self.head.nonce
        expected = self.expected_lsn
        while True:
            found = decode_record(data, position)
            if found is None or found[0].lsn != expected or not _fits(found[0], nonce):
                resumed = self._resume(position, nonce)
                if resumed is None:
                    return
                position, expected = resumed
                continue
            record, following = found
            if record.kind == BATCH:
                self.marks += 1
                self.last_mark = position
                position = self.position = following
                continue
            position = self.position = following
            expected += 1
            self.expected_lsn = expected
            yield record

    def _resume(self, position: int, nonce: bytes) -> tuple[int, int] | None:
        """Returns the position and the LSN to continue with behind damage that nothing needs; None: there is none."""
        lsn = self.expected_lsn
        if lsn >= self._needed_lsn:
            return None
        for at, mark in marks_from(self._data, position, nonce):
            if lsn < mark.lsn <= self._needed_lsn:
                self.skipped.append(Skipped(position, lsn, mark.lsn))
                self.position, self.expected_lsn = at, mark.lsn
                return at, mark.lsn
        return None

    def run(self) -> int:
        """Reads to the end of the sound part. Returns the number of records."""
        return sum(1 for _ in self)

    def rest_is_zeros(self) -> bool:
        step = 1 << 20
        zeros = bytes(step)
        for begin in range(self.position, len(self._data), step):
            block = self._data[begin : begin + step]
            if block != zeros[: len(block)]:
                return False
        return True

    def proves_synced(self, lsn: int) -> bool:
        """Returns whether a sound mark after the sound part says that `lsn` had been synced."""
        if self.head is None:
            return True  # The head was on disk before the segment had its name, so its absence is damage.
        nonce = self.head.nonce
        return any(
            mark.lsn > lsn and (synced_lsn_of(mark, nonce) or 0) >= lsn
            for _, mark in marks_from(self._data, self.position, nonce)
        )


def _fits(record: Record, nonce: bytes) -> bool:
    return synced_lsn_of(record, nonce) is not None if record.kind == BATCH else record.kind != HEAD


def marks_from(data: bytes, position: int, nonce: bytes) -> Iterator[tuple[int, Record]]:
    """Yields the sound batch marks of this segment at or after `position`, each with the position where it begins."""
    while (position := data.find(_MARK_BEGINS, position)) >= 0:
        found = decode_record(data, position)
        if found is not None and synced_lsn_of(found[0], nonce) is not None:
            yield position, found[0]
        position += 1


def used_bytes(data: bytes) -> int:
    """Returns how many bytes of a closed segment are used; zeros follow. Looks at its end alone, in blocks of a MiB, so
    that it takes some milliseconds, and damage before does not matter."""
    end = next((low + len(used) for low, high in _blocks(len(data)) if (used := data[low:high].rstrip(b"\0"))), 0)
    head = read_head(data)
    mark = _last_mark_below(data, end, b"" if head is None else head.nonce)
    position = end if mark is None else mark
    while (record := decode_record(data, position)) is not None:  # What a record has at its end may be zeros.
        position = record[1]
    return max(end, position)


def _last_mark_below(data: bytes, end: int, nonce: bytes) -> int | None:
    """Returns where the last sound mark begins, looked for from `end` down in blocks of a MiB; None: there is none."""
    for low, high in _blocks(end):
        found = _last_mark(data[low : high + MARK_BYTES], nonce)
        if found >= 0:
            return low + found
    return None


def _last_mark(data: bytes, nonce: bytes) -> int:
    """Returns where the last sound mark begins; -1: there is none."""
    position = data.rfind(_MARK_BEGINS)
    while position >= 0:
        found = decode_record(data, position)
        if found is not None and synced_lsn_of(found[0], nonce) is not None:
            return position
        position = data.rfind(_MARK_BEGINS, 0, position + len(_MARK_BEGINS) - 1)
    return -1


def _blocks(end: int) -> Iterator[tuple[int, int]]:
    """Yields the beginnings and ends of blocks of a MiB, from `end` down to 0."""
    return ((max(0, high - (1 << 20)), high) for high in range(end, 0, -(1 << 20)))


def damaged(path: Path, position: int, lsn: int) -> Corrupt:
    return Corrupt(
        f"journal record {lsn} is damaged: {path}, byte {position}. Records from it on cannot be trusted to be there."
        f" `shoal repair {path.parent.parent} --cut` gives up all from it on, says first what that is, keeps a copy",
        subject=str(path),
        position=position,
        value=lsn,
    )
