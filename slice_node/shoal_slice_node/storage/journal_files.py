"""Writes the journal of a slice: append, truncate, release. Every change is in the journal before it is elsewhere.

Why it survives a crash at any point:
- append: a batch is acknowledged after its fdatasync. A batch torn by a power loss is cut at start-up, whole or in
  part.
- rotation: the next segment is made ahead under another name, zeroed and synced; a rename and a folder sync put it in
  its place before its first batch. Until then the journal ends in the old segment.
- start-up: the bytes after the tail are zeroed and synced before anything is appended, so that no old record can ever
  be mistaken for a new one. Records that a killed process wrote but did not sync are synced before they are used.
- truncate: see there.
- release: the oldest segment goes first, so that the remaining ones never have a gap.
- a failed fdatasync: the kernel may have dropped the pages and marked them clean, so trying again proves nothing
  (Rebello et al., Can Applications Recover from fsync Failures?, USENIX ATC 2020). The journal stops. A restart writes
  the last batch again before it syncs: data that was only in the page cache is then on disk, or the sync fails.

Belongs here: writing, for one thread. Not here: reading (journal_reader), bytes (journal_segment), batching and threads
of its callers. The methods block: call them from one thread at a time, not the loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from shoal_contract.errors import Corrupt, OutOfRange, ResourceExhausted, ShoalError, TooLarge
from shoal_contract.journal_record import Record
from shoal_slice_node.storage.disk_errors import typed_error
from shoal_slice_node.storage.files import DiskFiles, File, Files
from shoal_slice_node.storage.journal_ahead import PREPARED, NextSegment, fill_with_zeros
from shoal_slice_node.storage.journal_ranges import RawRange, RawReader, check_raw, check_within, read_up_to, segment_of
from shoal_slice_node.storage.journal_reader import Segment, find_tail, list_segments, read_records
from shoal_slice_node.storage.journal_segment import (
    MARK_BYTES,
    NONCE_BYTES,
    Skipped,
    batch_mark,
    encode_head,
    segment_name,
)
from shoal_slice_node.storage.known_archives import KnownArchives
from shoal_slice_node.storage.limits import APPEND_BYTES_MAX, SEGMENT_BYTES, SEGMENT_RESERVE_SHARE

_log = logging.getLogger(__name__)


class Journal:
    """Writes one slice's journal. `next_lsn`: the LSN of the next record; everything below it is on disk. `identity`:
    the data's, as in the heads of the segments; b"" if they have none. `failed`: why it stopped; else None."""

    def __init__(
        self,
        files: Files,
        folder: Path,
        segments: list[Segment],
        segment_bytes: int,
        background: Executor,
        identity: bytes,
    ) -> None:
        self.identity = identity
        self._head_bytes = len(encode_head(bytes(NONCE_BYTES), identity))
        self._files = files
        self._folder = folder
        self._segments = segments
        self._segment_bytes = segment_bytes
        self._next = NextSegment(files, folder, segment_bytes, background, identity)
        """Is made ahead once an eighth of this segment is filled."""
        self._nonce = b""
        self.failed: ShoalError | None = None
        self._file: File
        self._named = True
        """True if the name of the segment being written is on disk."""
        self._position = 0
        self._end_marked = 0
        """The position after the mark that was written last by `_mark_end`."""
        self.next_lsn = 0
        self.known_archives = KnownArchives(files, folder)
        self._raw = RawReader(files)

    @classmethod
    def open(
        cls,
        folder: Path,
        checkpoint_lsn: int = 0,
        files: Files | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        background: Executor | None = None,
        identity: bytes = b"",
    ) -> Journal:
        """Opens the journal and cuts a torn tail; makes an empty journal if there is none and the checkpoint needs
        none. `identity`: for new segments, if the journal has none yet. Raises Corrupt for damage, or if the journal
        does not reach the checkpoint without a gap; ResourceExhausted."""
        files = files or DiskFiles()
        background = background or ThreadPoolExecutor(1, "journal-next-segment")
        try:
            files.make_folder(folder)
            journal = cls(files, folder, list_segments(files, folder), segment_bytes, background, identity)
            if journal._segments:
                journal._recover(checkpoint_lsn)
            elif checkpoint_lsn:
                raise journal._gap("has no segments", checkpoint_lsn)
            else:
                journal.next_lsn = 1
                journal._begin_segment()
                journal._sync_name()
        except OSError as error:
            raise typed_error(error, folder) from error
        return journal

    def _recover(self, checkpoint_lsn: int) -> None:
        first = self._segments[0].first_lsn
        if first > checkpoint_lsn + 1:
            raise self._gap(f"begins at LSN {first}", checkpoint_lsn)
        tail = find_tail(self._files, self._segments, checkpoint_lsn, self._say_skipped)
        if tail.next_lsn <= checkpoint_lsn:
            raise self._gap(f"ends at LSN {tail.next_lsn - 1}", checkpoint_lsn)
        for segment in self._segments[: tail.segment_index : -1]:
            self._files.remove(segment.path)
        del self._segments[tail.segment_index + 1 :]
        self._file = self._files.open(self._segments[-1].path)
        self._position, self.next_lsn, self._nonce = tail.position, tail.next_lsn, tail.nonce
        self.identity = self._next.identity = tail.identity or self.identity
        self._head_bytes = len(encode_head(tail.nonce, self.identity))
        if tail.last_mark < tail.position:
            data = self._files.read(self._segments[-1].path)
            self._file.write_at(tail.last_mark, bytes(data[tail.last_mark : tail.position]))
        if not tail.clean:
            fill_with_zeros(self._file, tail.position, self._segment_bytes)
        self._file.sync()
        self._files.sync_folder(self._folder)

    @staticmethod
    def _say_skipped(path: Path, skipped: Skipped) -> None:
        _log.warning(
            "journal records %d to %d are damaged: %s, byte %d. The checkpoint has them: nothing is lost, but check the"
            " disk, and an archive of this segment",
            skipped.first_lsn, skipped.end_lsn - 1, path, skipped.position,
        )  # fmt: skip

    def _gap(self, what: str, checkpoint_lsn: int) -> Corrupt:
        text = (
            f"journal {self._folder} {what}, but the checkpoint is at {checkpoint_lsn}: a part of this node's data is"
            " missing. Is a volume not mounted, or a folder from elsewhere?"
        )
        return Corrupt(text, subject=str(self._folder), value=checkpoint_lsn)

    @property
    def first_lsn(self) -> int:
        """Returns the first LSN of the oldest segment kept."""
        return self._segments[0].first_lsn

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def written_bytes(self) -> int:
        """Returns the bytes written in the segments kept. The last segment has more bytes allocated."""
        return (len(self._segments) - 1) * self._segment_bytes + self._position

    @property
    def allocated_bytes(self) -> int:
        """Returns the bytes allocated for the segments kept and for the one made ahead."""
        return (len(self._segments) + self._next.begun) * self._segment_bytes

    def append(self, data: bytes, first_lsn: int, last_lsn: int, frees: bool = False) -> None:
        """Appends whole records, first_lsn to last_lsn, which are on disk when this returns. `frees`: they may use the
        reserve. Raises ResourceExhausted (no disk space: nothing is appended, try again later), TooLarge, Corrupt (the
        disk failed; the journal stops for good)."""
        if self.failed is not None:
            raise self.failed
        assert first_lsn == self.next_lsn <= last_lsn, f"LSN {first_lsn}-{last_lsn}; expected {self.next_lsn}"
        size = self._check_size(data)
        left_bytes = self._segment_bytes - self._position - size
        if left_bytes < 0 or not self._named:
            self._rotate()
        elif left_bytes < self._segment_bytes // SEGMENT_RESERVE_SHARE and not frees:
            self._translated(self._next.ensure)
        self._write(batch_mark(first_lsn, first_lsn - 1, self._nonce) + data)
        self.next_lsn = last_lsn + 1
        if self._position > self._segment_bytes // 8:
            self._next.begin()

    def append_raw(self, data: bytes) -> int:
        """Appends a range of records that `raw` of another node's journal gave, as it is. Returns the last LSN. Checks
        it as a whole first: raises Malformed (a record is not whole or not sound), OutOfRange (it does not begin at
        `next_lsn`, or has a gap), TooLarge; then nothing is appended. Else raises as `append` does."""
        self._check_size(data)
        last_lsn = check_raw(data, self.next_lsn)
        self.append(data, self.next_lsn, last_lsn, frees=True)
        return last_lsn

    def _check_size(self, data: bytes) -> int:
        """Returns the bytes of a batch with its mark. Raises TooLarge."""
        size, limit = MARK_BYTES + len(data), min(APPEND_BYTES_MAX, self._segment_bytes - self._head_bytes)
        if size > limit:
            raise TooLarge(f"batch of {size} bytes; the limit is {limit}", limit=limit, value=size)
        return size

    def _write(self, batch: bytes) -> None:
        try:
            self._file.write_at(self._position, batch)
        except OSError as error:
            self._unwrite(error, len(batch))
        try:
            self._file.sync()
        except OSError as error:  # Also without room (thin volumes, quotas): what the disk has now is unknown.
            path = self._segments[-1].path
            text = f"{path}, byte {self._position}: a batch could not be synced: {error}"
            self.failed = Corrupt(text, subject=str(path), position=self._position)
            raise self.failed from error
        self._position += len(batch)

    def _unwrite(self, error: OSError, batch_bytes: int) -> None:
        """Overwrites with zeros what may be written of a failed batch, and syncs them: no start may find a record that
        was refused. If that fails too, the journal stops. Raises ResourceExhausted, Corrupt."""
        failure = typed_error(error, self._segments[-1].path, self._position)
        try:
            if not isinstance(failure, ResourceExhausted):
                raise error
            self._file.write_at(self._position, bytes(batch_bytes))
            self._file.sync()
        except OSError:
            self.failed = failure = Corrupt(failure.message, subject=failure.subject, position=self._position)
        raise failure from error

    def _rotate(self) -> None:
        """Begins a new segment for the next batch, or ends what was begun. Everything before it has been synced."""
        if self._named:
            self._translated(self._begin_segment)
        self._translated(self._sync_name)

    def _translated(self, work: Callable[[], None]) -> None:
        """Does work with files. Raises ResourceExhausted; Corrupt, which stops the journal."""
        try:
            work()
        except OSError as error:
            failure = typed_error(error, self._folder)
            if isinstance(failure, Corrupt):
                self.failed = failure
            raise failure from error

    def _begin_segment(self) -> None:
        """Begins the next segment: the one made ahead, if there is one. Nothing may be written to it before
        `_sync_name`: after a power loss its name may be gone. If this fails, the journal goes on in the old segment."""
        nonce = self._next.take()
        file = self._files.open(self._folder / PREPARED)
        path = self._folder / segment_name(self.next_lsn)
        try:
            self._files.rename(self._folder / PREPARED, path)
        except OSError:
            file.close()
            raise
        if self._segments:
            self._file.close()
        self._file, self._position, self._nonce, self._end_marked = file, self._head_bytes, nonce, 0
        self._segments.append(Segment(self.next_lsn, path))
        self._named = False

    def _sync_name(self) -> None:
        self._files.sync_folder(self._folder)
        self._named = True

    @property
    def next_segment(self) -> NextSegment:
        return self._next

    def has_next_segment(self) -> bool:
        """Returns whether the next segment is on disk. If it is not and there is room for it, its making begins, in the
        background."""
        return self._next.is_made()

    def ends_without_next(self) -> bool:
        """Returns whether little more than the reserve is left of this segment, and there is no room for the next."""
        left_bytes = self._segment_bytes - self._position
        little = left_bytes < 2 * self._segment_bytes // SEGMENT_RESERVE_SHARE
        return little and not self._next.is_made() and not self._next.begun

    def records(self, from_lsn: int) -> Iterator[Record]:
        """Returns the records from from_lsn on, up to the last one written now. Raises OutOfRange if from_lsn is
        released, Corrupt."""
        return read_records(self._files, tuple(self._segments), from_lsn, self.next_lsn)

    def raw(self, from_lsn: int, max_bytes: int) -> RawRange:
        """Returns records from from_lsn on as bytes, as many as fit `max_bytes`, but always one if there is one. Raises
        OutOfRange (released, above the end, or more than RAW_BYTES_MAX), Corrupt, ResourceExhausted."""
        return self._raw.read(self._segments, from_lsn, self.next_lsn, max_bytes)

    def truncate(self, from_lsn: int, checkpoint_lsn: int) -> None:
        """Cuts the records from from_lsn on: when this returns, no start finds them again. `checkpoint_lsn`: what a
        checkpoint holds, or one under way will hold; records up to it are not cut. Raises OutOfRange, Corrupt,
        ResourceExhausted; if nothing was cut, the journal goes on.

        A crash in the middle leaves a journal without a gap that ends at from_lsn or later, up to where it ended: the
        caller finds at its next start what made it cut, and cuts again. At each step:
        - The segment with from_lsn is written anew under the name that no start reads: nothing has changed.
        - Later segments are removed, the newest first; each removal is on disk before the next, so no gap can be left.
          After each of them the journal ends where the segment before it does, which is whole.
        - A rename puts the new segment in place of the old one: a start finds one or the other, and each is whole.
        The old file is never written to: the archive may have it under another name (a hard link). Zeroing it instead
        could leave a sound mark behind a torn record, which a start must take for damage.
        """
        if self.failed is not None:
            raise self.failed
        check_within(from_lsn, self.first_lsn, self.next_lsn)
        if from_lsn <= checkpoint_lsn:
            text = f"cannot cut the journal from LSN {from_lsn}: the checkpoint holds all up to {checkpoint_lsn}"
            raise OutOfRange(text, subject="lsn", limit=checkpoint_lsn + 1, value=from_lsn)
        if from_lsn == self.next_lsn:
            return
        index = segment_of(self._segments, from_lsn)
        head, kept = read_up_to(self._files, self._segments[index], from_lsn, checkpoint_lsn + 1)
        try:
            file = self._prepare_with(kept)
        except OSError as error:
            raise typed_error(error, self._folder) from error
        try:
            self._replace_from(index)
        except OSError as error:
            file.close()
            self.failed = Corrupt(f"cutting the journal failed: {error}", subject=str(self._folder), value=from_lsn)
            raise self.failed from error
        self._raw.forget()
        self._file.close()
        self._file, self._nonce, self._named = file, head.nonce, True
        self._position, self._end_marked, self.next_lsn = len(kept), 0, from_lsn

    def _prepare_with(self, kept: bytes) -> File:
        """Makes a segment that begins with these bytes, head and records, under the name that no start-up reads."""
        self._next.take()
        file = self._files.open(self._folder / PREPARED)
        try:
            file.write_at(0, kept)
            file.sync()
        except OSError:
            file.close()
            raise
        return file

    def _replace_from(self, index: int) -> None:
        """Puts the prepared segment in place of this one, and removes all later ones."""
        while len(self._segments) > index + 1:
            self._files.remove(self._segments.pop().path)
            self._files.sync_folder(self._folder)
        self._files.rename(self._folder / PREPARED, self._segments[index].path)
        self._files.sync_folder(self._folder)

    def closed(self, below_lsn: int) -> list[tuple[Segment, int]]:
        """Returns the segments that have only records below `below_lsn`, each with its end LSN. Nothing will be written
        to them again, not even after a crash, since a later segment has a mark: of a batch, or of a clean stop."""
        end_lsn = min(below_lsn, self.next_lsn - (self._position == self._head_bytes))
        return [(one, later.first_lsn) for one, later in pairwise(self._segments) if later.first_lsn <= end_lsn]

    def seal(self) -> tuple[Path, int] | None:
        """Ends the segment being written, with a mark that all of it was synced, and begins an empty one. Returns the
        path of the ended segment and the number of its sound bytes; None: it has no records. A start that finds no mark
        in the new one continues in the old one. Raises the same errors as `append`."""
        first_lsn, path = self._segments[-1]
        if first_lsn == self.next_lsn:
            return None
        self._mark_end()
        sound_bytes = self._position
        self._rotate()
        return path, sound_bytes

    def release(self, below_lsn: int) -> int:
        """Removes the segments that have only records below `below_lsn`, but not the one being written. Returns how
        many it removed. Raises ResourceExhausted, Corrupt."""
        released = 0
        try:
            while len(self._segments) > 1 and self._segments[1].first_lsn <= below_lsn:
                self._files.remove(self._segments[0].path)
                del self._segments[0]
                released += 1
            if released:
                self._files.sync_folder(self._folder)
        except OSError as error:
            raise typed_error(error, self._folder) from error
        return released

    def close(self) -> None:
        """Closes the journal, with a mark that all of it was synced: a bad last record is from now on known to be
        damage."""
        self._next.close()
        self._mark_end()
        self._file.close()

    def _mark_end(self) -> None:
        mark = batch_mark(self.next_lsn, self.next_lsn - 1, self._nonce)
        if self._position == self._end_marked:  # It is asked again: there was no room for the next segment.
            return
        if self.failed is None and self._position + len(mark) <= self._segment_bytes:
            self._write(mark)
            self._end_marked = self._position
