"""Disks that are really full, for tests: a small tmpfs where the tests may mount one, and a bound on sizes of files
where they may not. Not here: faults that no disk is needed for (faulty_files, faulty_node)."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Yields `folder` with a file system of its own. Skips the test where none may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def fill(folder: Path, leave_bytes: int = 0) -> Path:
    """Returns a file that takes the disk's space but for `leave_bytes`."""
    filler = folder / "filler"
    filler.write_bytes(b"")
    with filler.open("r+b") as file:
        while True:
            try:
                os.posix_fallocate(file.fileno(), 0, free_bytes(folder) - leave_bytes)
                break
            except OSError as error:  # A node may take some at the same moment.
                if error.errno != errno.ENOSPC:
                    raise
    return filler


@contextmanager
def file_bytes_at_most(limit_bytes: int) -> Iterator[None]:
    """Lets no file of this process become larger: a write is short, and the next one fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
