"""Repairs a stopped node's journal as an operator decides: sets one record aside, or gives up all records from damage
on.

Replaced files are kept, in `repair/<time>` of the node's folder. A new segment takes the name of an old one only when
all of it is on disk. Belongs here: what may be repaired, and doing it. Not here: asking the operator (the command
line).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from shoal_contract.data_folder import JOURNAL_FOLDER
from shoal_contract.errors import Conflict, Corrupt, OutOfRange
from shoal_contract.journal_record import HEADER, LEFT_OUT, SET_ASIDE, STX, Record, decode_record, encode_record
from shoal_slice_node.storage.data_folder import REPAIR_FOLDER
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_ranges import begin_of
from shoal_slice_node.storage.journal_reader import Segment, find_tail, list_segments, read_records
from shoal_slice_node.storage.journal_segment import (
    BATCH,
    HEAD,
    NONCE_BYTES,
    SegmentScan,
    batch_mark,
    encode_head,
    segment_name,
)
from shoal_slice_node.storage.limits import LOST_RECORDS_SHOWN, SEGMENT_BYTES
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.record_text import record_text

_STX = bytes((STX,))


class Place(NamedTuple):
    """Says where a record is: its segment's file, and its position there in bytes."""

    path: Path
    position: int
    record: Record


@dataclass(frozen=True)
class Loss:
    """Describes what a cut gives up: all records from `first_lsn` on. `last_lsn`: the last of them that can still be
    read; 0: none can. `records`: how many of them can be read, by kind. `texts`: what the first LOST_RECORDS_SHOWN of
    them requested, a line each. `path`, `position`: where the damage is."""

    path: Path
    position: int
    first_lsn: int
    last_lsn: int
    records: dict[int, int]
    texts: tuple[str, ...] = ()


class JournalRepair:
    """Repairs one journal. `node`: the node's data folder, which must be held by `stopped`. Only `set_aside` and `cut`
    change anything."""

    def __init__(self, node: Path, store: Path) -> None:
        self._node = node
        self._folder = node / JOURNAL_FOLDER
        self._files = DiskFiles()
        base = LmdbBase(store)
        try:
            self.checkpoint_lsn, self._identity = base.lsn, base.identity
        finally:
            base.close()
        self._segments = list_segments(self._files, self._folder) if self._folder.is_dir() else []

    # One record.

    def find(self, lsn: int) -> Place:
        """Returns where record `lsn` is. Raises OutOfRange if the checkpoint has it already, or the journal has no such
        sound record."""
        if lsn <= self.checkpoint_lsn:
            raise OutOfRange(
                f"record {lsn} is in the checkpoint, which goes to {self.checkpoint_lsn}: it was applied already",
                subject="lsn",
                limit=self.checkpoint_lsn + 1,
                value=lsn,
            )
        for segment in self._segments:
            scan = SegmentScan(self._files.read(segment.path), segment.first_lsn, lsn)
            for record in scan:
                if record.lsn == lsn:
                    return Place(segment.path, scan.position - HEADER.size - len(record.payload), record)
        raise OutOfRange(f"the journal has no sound record {lsn}", subject="lsn", value=lsn)

    def set_aside(self, place: Place) -> Path:
        """Marks the record, so that a replay leaves out what cannot be applied of it; the second time, so that it
        leaves out all of it. Returns the folder that keeps the segment as it was before."""
        kind, flags, lsn, epoch, time_ms, payload = place.record
        marked = encode_record(kind, lsn, epoch, time_ms, payload, flags | (LEFT_OUT if flags else SET_ASIDE))
        data = bytearray(self._files.read(place.path))
        data[place.position : place.position + len(marked)] = marked
        kept = self._keep([place.path])
        self._replace(place.path, data)
        return kept

    # Damage.

    def find_damage(self) -> Loss | None:
        """Returns the first damage that keeps a node from starting; None: there is none."""
        lsn = self.checkpoint_lsn
        if not self._segments:
            return Loss(self._folder, 0, lsn + 1, 0, {}) if lsn else None
        first = self._segments[0]
        if first.first_lsn > lsn + 1:
            return self._loss(first.path, 0, lsn + 1)
        found, end_lsn = None, lsn + 1
        try:
            tail = find_tail(self._files, self._segments, lsn)
            end_lsn = tail.next_lsn
            if end_lsn <= lsn:
                return self._loss(self._segments[tail.segment_index].path, tail.position, lsn + 1)
        except Corrupt as error:
            found, end_lsn = error, max(int(error.value or 0), lsn + 1)
        try:
            for _ in read_records(self._files, self._segments, lsn + 1, end_lsn):
                pass
        except Corrupt as error:
            found = error
        if found is None:
            return None
        return self._loss(Path(found.subject), found.position, max(int(found.value or 0), lsn + 1))

    def _loss(self, path: Path, position: int, first_lsn: int) -> Loss:
        kinds: Counter[int] = Counter()
        texts: list[str] = []
        last_lsn = 0
        before = [segment for segment in self._segments if segment.path < path]
        for segment in self._segments:
            if segment.path >= path or segment in before[-1:]:  # The one before may go on beyond the damage.
                for record in _readable(self._files.read(segment.path), position if segment.path == path else 0):
                    if record.lsn >= first_lsn:
                        kinds[record.kind] += 1
                        last_lsn = max(last_lsn, record.lsn)
                        if len(texts) < LOST_RECORDS_SHOWN:
                            texts.append(f"record {record.lsn}: {record_text(record)}")
        return Loss(path, position, first_lsn, last_lsn, dict(kinds), tuple(texts))

    def cut(self, loss: Loss) -> Path:
        """Ends the journal before `loss`. Returns the folder that keeps the segments as they were before."""
        kept = self._keep([segment.path for segment in self._segments])
        last = next((one for one in reversed(self._segments) if one.first_lsn < loss.first_lsn), None)
        ended = None if last is None else self._ended(last, loss.first_lsn)
        if last is None or ended is None:  # No sound records lead up to the cut: only the checkpoint is left.
            path = self._folder / segment_name(loss.first_lsn)
            ended = encode_head(os.urandom(NONCE_BYTES), self._identity)
            ended += bytes(SEGMENT_BYTES - len(ended))
            gone = [segment.path for segment in self._segments]
        else:
            path = last.path
            gone = [segment.path for segment in self._segments if segment.first_lsn > last.first_lsn]
        self._replace(path, ended)
        for other in sorted(set(gone) - {path}, reverse=True):
            self._files.remove(other)
        self._files.sync_folder(self._folder)
        return kept

    def _ended(self, segment: Segment, end_lsn: int) -> bytes | None:
        """Returns a segment's bytes up to `end_lsn`, with a mark that all of them are on disk; None: its sound records
        do not reach it."""
        data = self._files.read(segment.path)
        scan = SegmentScan(data, segment.first_lsn, self.checkpoint_lsn + 1)
        beyond = next((begin_of(scan, record) for record in scan if record.lsn >= end_lsn), None)
        if scan.head is None or scan.expected_lsn < end_lsn:
            return None
        mark = batch_mark(end_lsn, end_lsn - 1, scan.head.nonce)
        sound = data[: scan.position if beyond is None else beyond]
        if len(sound) + len(mark) <= len(data):
            sound += mark
        return sound + bytes(len(data) - len(sound))

    # Files.

    def _keep(self, paths: Sequence[Path]) -> Path:
        """Gives the files a second name in a new folder, which stays when the first name is removed. Returns the
        folder. Raises Conflict if it exists."""
        folder = self._node / REPAIR_FOLDER / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        if folder.exists():
            raise Conflict(f"{folder} is there already: wait a second", subject=str(folder))
        self._files.make_folder(folder.parent)
        self._files.make_folder(folder)
        for path in paths:
            self._files.link(path, folder / path.name)
        self._files.sync_folder(folder)
        return folder

    def _replace(self, path: Path, data: bytes | bytearray) -> None:
        made = path.with_suffix(".repaired")
        made.unlink(missing_ok=True)
        file = self._files.create(made)
        try:
            file.write_at(0, bytes(data))
            file.sync()
        finally:
            file.close()
        self._files.rename(made, path)
        self._files.sync_folder(path.parent)


def _readable(data: bytes, position: int) -> Iterator[Record]:
    """Yields the sound records from `position` on, whatever lies between them."""
    position = data.find(_STX, position)
    while position >= 0:
        found = decode_record(data, position)
        if found is None:
            position = data.find(_STX, position + 1)
            continue
        record, position = found
        if record.kind not in (BATCH, HEAD):
            yield record
        position = data.find(_STX, position)
