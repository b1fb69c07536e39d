"""Defines the few file operations that the journal needs, as an interface: the disk, or a disk that fails in a test.

Belongs here: open, write, sync, name. Not here: what is written. Errors are OSError, as the system raises them; the
callers know what they mean.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Protocol, cast


class File(Protocol):
    """Writes to an open file at given positions."""

    def write_at(self, position: int, data: bytes) -> None:
        """Writes all of `data`. Raises OSError; a part may be written then."""

    def allocate(self, size_bytes: int) -> None:
        """Reserves space on disk for so many bytes. Raises OSError(ENOSPC)."""

    def sync(self) -> None:
        """Makes everything written so far survive a power loss. After an error it is unknown what survives, and `sync`
        must not be repeated."""

    def close(self) -> None:
        """Closes the file; must be called once only. After a second call the system might close another file."""


class Files(Protocol):
    """Gives access to a file system. Changes of names survive a power loss once `sync_folder` has returned."""

    def make_folder(self, folder: Path) -> None: ...

    def names(self, folder: Path) -> list[str]: ...

    def free_space_bytes(self, folder: Path) -> int:
        """Returns the bytes that are free on the folder's file system, with those that only some may use."""

    def read(self, path: Path) -> bytes: ...

    def create(self, path: Path) -> File:
        """Creates a new file. Raises FileExistsError if it exists."""

    def open(self, path: Path) -> File: ...

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file within one file system. Replaces `to`."""

    def link(self, path: Path, to: Path) -> None:
        """Gives the same file a second name. Raises FileExistsError if `to` exists; another OSError where the file
        systems cannot do it."""

    def remove(self, path: Path) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...


class DiskFile:
    """Writes to a file on disk. See File."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, position: int, data: bytes) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):  # after a signal, or on a disk that is nearly full
            written += os.pwrite(self._fd, data[written:], position + written)

    def allocate(self, size_bytes: int) -> None:
        os.posix_fallocate(self._fd, 0, size_bytes)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class DiskFiles:
    """Gives access to the disk's file system. See Files."""

    def make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True)
            self.sync_folder(folder.parent)

    def names(self, folder: Path) -> list[str]:
        return [entry.name for entry in folder.iterdir()]

    def free_space_bytes(self, folder: Path) -> int:
        found = os.statvfs(folder)
        return found.f_bfree * found.f_frsize

    def read(self, path: Path) -> bytes:
        """Returns the file as a memory map, which needs no copy and no fresh memory to fill (that was a third of a
        replay's time, measured). Callers use it as `bytes`: length, slices, find and struct.unpack_from are the
        same."""
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return b""
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        return cast(bytes, mapped)

    def create(self, path: Path) -> File:
        return DiskFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def open(self, path: Path) -> File:
        return DiskFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))

    def rename(self, path: Path, to: Path) -> None:
        path.replace(to)

    def link(self, path: Path, to: Path) -> None:
        to.hardlink_to(path)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
