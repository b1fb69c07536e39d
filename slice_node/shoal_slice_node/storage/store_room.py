"""Tells a full disk from a broken one after a write to the store failed, and gives back what the failed write took.

LMDB reports a short write as EIO, and a short write is how file systems say that the disk filled in the middle of it.
A broken disk gives the same EIO. So the system is asked at once whether the file can still grow: `posix_fallocate`
answers for free space, quotas and the limit of a file's size alike, where `statvfs` knows free space only. If the file
can grow, the write was not short, or there is room again: the caller repeats it, and believes the second EIO.

A failed write leaves the file longer, up to all that the disk had. No snapshot has pages above the last commit's, since
only the owner of the write transaction adds pages. They are cut off, so that the journal, and other programs, have that
room. Belongs here: the file's room, and that what is seen of it is on disk. Not here: what is written
(checkpoint_writer).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from shoal_contract.errors import Corrupt, ResourceExhausted
from shoal_slice_node.storage.disk_errors import FULL, typed_error
from shoal_slice_node.storage.limits import STORE_GROWTH_BYTES, STORE_RESERVE_BYTES
from shoal_slice_node.storage.mapped_memory import LMDB_FILE, LMDB_LOCK_FILE

_FILE_LIMIT: Final = errno.EFBIG
_MIB: Final = 1 << 20
_META_BYTES: Final = 2 * (64 << 10)
"""The two meta pages, on machines with pages of up to 64 KiB."""


def settle(folder: Path) -> None:
    """Makes what is seen of the store's meta pages what the disk has; must be called before a writer opens the store.

    If the write of a meta page failed, LMDB has put the old one back, as it is seen from now on; but the disk may have
    the new one. A next write reuses pages which that one refers to: after a power loss it would stand over foreign
    pages. A failed sync leaves pages that count as clean, so they are written once more. Raises Corrupt if the disk
    cannot, ResourceExhausted if it has no room for that: some file systems write each page to a new place.
    """
    path = folder / LMDB_FILE
    if not path.exists():
        return
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.pwrite(file, os.pread(file, _META_BYTES, 0), 0)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        failure = typed_error(error, path)
        if isinstance(failure, Corrupt):
            failure = Corrupt(f"{path} cannot be written and synced: {error.strerror}", subject=str(path))
        raise failure from error


def reserve_lock_file(folder: Path) -> int:
    """Gives LMDB's lock file all its blocks, if there is room. It is sparse: with about 60 readers a process touches a
    page that has none, and on a full disk the system then ends it (SIGBUS).

    Returns the open file, which must be closed after the environment. A process that closes a file gives up all locks
    that it has on it (fcntl(2), F_SETLK), LMDB's, too: the next process that opens the environment would then think
    that it is alone, and make readers and locks anew. Raises OSError.
    """
    file = os.open(folder / LMDB_LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    with suppress(OSError):
        os.posix_fallocate(file, 0, os.fstat(file).st_size)
    return file


def _lengthen(file: int, to_bytes: int) -> None:
    """Gives the file so many bytes, with blocks, or leaves it as long as it was. Raises OSError."""
    size = os.fstat(file).st_size
    try:
        os.posix_fallocate(file, size, max(1, to_bytes - size))
    except OSError:
        os.ftruncate(file, size)
        raise


class StoreRoom:
    """Keeps the store's file in `folder` as long as it should be. One for each process that writes it; used only while
    no write transaction is open. It keeps no error: an exception that is raised again keeps the frames of every raise,
    with the deltas in their variables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LMDB_FILE
        self._reserved_to = 0
        """Where the reserve ends in the file."""

    def failed(self, code: int, used_bytes: int) -> ResourceExhausted | None:
        """Returns what a failed write means if it lacked room; None: it did not, or there is room again. `code`: the
        errno that LMDB gave. `used_bytes`: the file's bytes that the last commit uses; the others are cut off."""
        lacking = code if code in FULL or code == _FILE_LIMIT else self._growth_error() if code == errno.EIO else 0
        if not lacking:
            return None
        self._cut(used_bytes)
        found = os.statvfs(self._folder)
        return self._error(lacking, found.f_bavail * found.f_frsize)

    def reserve(self, used_bytes: int) -> None:
        """Gives the file STORE_RESERVE_BYTES beyond `used_bytes`, if half of them are gone and the disk has room. LMDB
        takes no notice of how long its file is."""
        if self._path.stat().st_size < used_bytes + STORE_RESERVE_BYTES // 2:
            with suppress(OSError):
                file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    _lengthen(file, used_bytes + STORE_RESERVE_BYTES)
                finally:
                    os.close(file)
        self._reserved_to = min(self._path.stat().st_size, used_bytes + STORE_RESERVE_BYTES)

    def _growth_error(self) -> int:
        """Returns the errno of making the file longer by STORE_GROWTH_BYTES, if it says that there is no room; else 0.
        The file is as long as before then."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size = os.fstat(file).st_size
            try:
                os.posix_fallocate(file, size, STORE_GROWTH_BYTES)
            except OSError as error:
                return error.errno if error.errno in FULL or error.errno == _FILE_LIMIT else 0
            finally:
                os.ftruncate(file, size)
        finally:
            os.close(file)
        return 0

    def _cut(self, used_bytes: int) -> None:
        """Cuts the file off at `used_bytes`, or at the end of the reserve. If it was the meta page that could not be
        written, LMDB has put the old one back, and the disk may still have the new one, with the pages above: so what
        is seen is synced first. If that fails, nothing is cut (and the next writer must `settle` it)."""
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            kept_bytes = max(used_bytes, self._reserved_to)
            if os.fstat(file).st_size > kept_bytes:
                with suppress(OSError):
                    os.fsync(file)
                    os.ftruncate(file, kept_bytes)
        finally:
            os.close(file)

    def _error(self, code: int, free_bytes: int) -> ResourceExhausted:
        if code == _FILE_LIMIT:
            text = f"the checkpoint {self._path} may not grow: {os.strerror(code)}. Raise the limit (ulimit -f)"
            return ResourceExhausted(text, subject="file bytes")
        text = (
            f"no disk space for the checkpoint {self._path}: {os.strerror(code)}; it needs more than the"
            f" {free_bytes / _MIB:,.1f} MiB that are free. Make room"
        )
        return ResourceExhausted(text, subject="disk bytes")
