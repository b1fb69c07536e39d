"""Puts closed journal segments into the archive, a folder on any file system, before the journal releases them.

    <archive>/<slice>/<node>/<first lsn, 16 hex digits>.journal      segments, as they were in the journal
                             <the same>.journal.partial              under way, or left by a crash: never read

Why it survives a crash at any point: a segment is complete and synced under its partial name before a rename gives it
its final name. The journal releases the segment only after that rename and a sync of the folder. Repeating a step has
the same result as doing it once: a closed segment never changes. A segment that was sealed by age, or by a clean stop,
is copied, not linked: if a crash comes before its release, the next start writes on in it, and it is then archived
again, longer. So what the archive has of a segment is the segment, or its beginning; anything else is another life's
(one that a restored copy does not know), or of before a repair, and is not overwritten. Nor is anything added behind a
last segment that is neither in the journal nor the one that this archive got last (known_archives).

A segment's file has its full size from the beginning. Where less than half of it is used, as of one that was sealed by
age, the archive gets a copy of that part; a link would keep all of the file. Readers take the shorter file as it is.

Belongs here: archiving one segment, and what the archive has. Not here: when, and what follows a failure (archiving).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from shoal_contract.errors import ResourceExhausted, ShoalError, Unavailable
from shoal_slice_node.storage.files import DiskFiles, Files
from shoal_slice_node.storage.journal_reader import Segment, list_segments
from shoal_slice_node.storage.journal_segment import used_bytes
from shoal_slice_node.storage.known_archives import KnownArchives, LastArchived
from shoal_slice_node.storage.limits import ARCHIVE_COPY_BYTES, ARCHIVE_LOOK_BYTES

PARTIAL = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Archive:
    """Archives one node's segments in `folder`. Blocks: use it in one thread, not the loop's."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self.folder = folder
        self._files = files or DiskFiles()

    def found(self, journal: Sequence[Segment], known: KnownArchives) -> LastArchived | None:
        """Returns what is known of the segment that the archive got last; None: nothing, as of an empty archive.
        Compares the last segment with the `journal`, which may have it, or with what is known, as a whole. Raises the
        same errors as `put`, and Unavailable if another cluster, or a copy of this data, wrote it."""
        try:
            return self._found({segment.first_lsn: segment.path for segment in journal}, known.entries())
        except OSError as error:
            raise _typed(error, self.folder) from error

    def _found(self, journal: Mapping[int, Path], entries: Sequence[LastArchived]) -> LastArchived | None:
        *_, before, last = None, None, *self._segments()
        if last is None:
            return None
        mine = journal.get(last.first_lsn)
        if mine is not None:
            _check_same_life(self._files.read(mine), self._files.read(last.path), last.path)
        found = self._entry(last, entries, whole=mine is None)
        if found is None and mine is None:
            raise FileExistsError(
                f"it ends with {last.path.name}, which is not what this node archived there last: another cluster, or a"
                " copy of this node's data, went on with this archive, or this data is older than it, as after a"
                " restore. Give another archive, or move this node's folder in it away; nothing is added, and the"
                " journal keeps what is not archived"
            )
        if found is None and before is not None:  # The last one came behind it, and the process was killed.
            found = self._entry(before, entries, before.first_lsn not in journal)
        return found

    def _entry(self, segment: Segment, entries: Sequence[LastArchived], whole: bool) -> LastArchived | None:
        """Returns the entry of a segment that the archive has; None: there is none. `whole`: nothing may follow what is
        known of it."""
        those = [entry for entry in entries if entry.first_lsn == segment.first_lsn]
        if not those:
            return None
        data = self._files.read(segment.path)
        size = used_bytes(data) if whole else None
        return max(
            (entry for entry in those if size in (None, entry.size) and entry.begins(data)), default=None
        )  # Where two archives have the same last, what both have.

    def has_from(self, end_lsn: int, known: KnownArchives) -> int | None:
        """Returns the LSN from which on the archive has all records below `end_lsn`, as far back as this node archived
        them, or the data that it came from. None: the last segment is not the one that ends there. Segments that are
        missing in the middle are not looked for. Raises the same errors as `put`."""
        try:
            segments = self._segments()
            if not segments:
                return 1 if end_lsn == 1 else None
            entries = [entry for entry in known.entries() if entry.end_lsn == end_lsn]
            entry = self._entry(segments[-1], entries, whole=True)
        except FileNotFoundError:  # Its segments are being removed.
            return None
        except OSError as error:
            raise _typed(error, self.folder) from error
        if entry is None:
            return None
        return next(segment.first_lsn for segment in segments if segment.first_lsn >= entry.from_lsn)

    def _segments(self) -> list[Segment]:
        """Returns the segments there; none if there is no folder."""
        try:
            return list_segments(self._files, self.folder)
        except FileNotFoundError:
            return []

    def put_lacking(self, path: Path) -> bool:
        """Archives a closed segment, unless a look says that the archive has all of it. Returns whether it had to.
        Reads one page of the archive's copy and two of the segment if it had not. Raises the same errors as `put`."""
        try:
            return not self._has(path) and self._put(path, None)
        except OSError as error:
            raise _typed(error, self.folder) from error

    def _has(self, path: Path) -> bool:
        """Returns whether the archive's copy begins as the segment does and ends where only zeros follow."""
        there = self._there(path)
        if there is None:
            return False
        data, size, page = self._files.read(path), len(there), ARCHIVE_LOOK_BYTES
        same = there[:page] == data[: min(page, size)] and size <= len(data)
        return same and not data[size : size + page].strip(b"\0")

    def _there(self, path: Path) -> bytes | None:
        """Returns what the archive has of a segment; None: nothing. Lists no folder: it may be a large one."""
        try:
            return self._files.read(self.folder / path.name)
        except FileNotFoundError:
            return None

    def put(self, path: Path, sound_bytes: int | None = None) -> bool:
        """Archives a closed segment, by a link where possible and where most of it is used. It is on disk in the
        archive when this returns. `sound_bytes`: copies only so many bytes, for a segment that the journal may still
        write to. Returns whether the archive lacked it. What it has of it is compared as a whole.

        Raises ResourceExhausted (no space there), Unavailable (gone, not writable, ...): nothing has changed then.
        """
        try:
            return self._put(path, sound_bytes)
        except OSError as error:
            raise _typed(error, self.folder) from error

    def _put(self, path: Path, sound_bytes: int | None) -> bool:
        files, to, partial = self._files, self.folder / path.name, self.folder / (path.name + PARTIAL)
        files.make_folder(self.folder)
        data, there = files.read(path), self._there(path)
        size = used_bytes(data) if sound_bytes is None else sound_bytes
        if there is not None:
            _check_same_life(data if sound_bytes is None else data[:size], there, to)
            if len(there) >= size:
                files.sync_folder(self.folder)  # A crash may have prevented this sync before.
                return False
        with suppress(FileNotFoundError):
            files.remove(partial)
        if sound_bytes is not None or 2 * size < len(data) or not self._linked(path, partial):
            self._copy(data, size, partial)
        files.rename(partial, to)
        files.sync_folder(self.folder)
        return True

    def _linked(self, path: Path, partial: Path) -> bool:
        try:
            self._files.link(path, partial)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return False
        return True

    def _copy(self, data: bytes, size: int, partial: Path) -> None:
        """Copies so many bytes from the beginning on."""
        file = self._files.create(partial)
        try:
            for position in range(0, size, ARCHIVE_COPY_BYTES):
                file.write_at(position, data[position : min(size, position + ARCHIVE_COPY_BYTES)])
            file.sync()
        finally:
            file.close()


def _check_same_life(data: bytes, there: bytes, path: Path) -> None:
    """Checks that the archive has this segment, or its beginning. Raises OSError."""
    ends = [*range(ARCHIVE_COPY_BYTES, len(there), ARCHIVE_COPY_BYTES), len(there)]
    # Both are memory maps: block by block, or all of them would be copied.
    if any(data[at:end] != there[at:end] for at, end in pairwise([0, *ends])):
        raise FileExistsError(
            f"{path} has other records than the journal: those of another cluster that was given the same archive, of"
            f" another life of this slice, as after a restore, or of before a repair; or one of the two is damaged"
            f" (shoal check). Move the archive's folder of this node"
            f" away, or give another archive; nothing is overwritten, and the journal keeps what is not archived"
        )


def _typed(error: OSError, folder: Path) -> ShoalError:
    if error.errno in _FULL:
        return ResourceExhausted(f"no space in the archive {folder}: {error.strerror}", subject="archive bytes")
    return Unavailable(f"archive {folder}: {error}", subject=str(folder))
