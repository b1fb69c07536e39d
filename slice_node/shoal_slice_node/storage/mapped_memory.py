"""Measures resident memory, and lets go of pages that are only mapped from a file.

LMDB maps its file; every page ever read counts as this process's memory until it is unmapped. `madvise(MADV_DONTNEED)`
on a shared file mapping only drops the page table entries: written data stays in the page cache, and the next read
finds it there (madvise(2)). Linux only; elsewhere nothing happens.

Belongs here: /proc and madvise. Not here: when to do it (store, checkpointer_process).
"""

from __future__ import annotations

import ctypes
import os
from mmap import MADV_DONTNEED, PAGESIZE
from pathlib import Path

from shoal_slice_node.core.limits import MEMORY_BYTES_MIN
from shoal_slice_node.storage.limits import STORE_MEMORY_SHARE

LMDB_FILE = "data.mdb"
LMDB_LOCK_FILE = "lock.mdb"
"""LMDB's own name for the data file in an environment's folder."""

STEP_BYTES = 64 << 20
"""Bytes of pages dropped at a time, which takes under a millisecond."""

_MAPS = Path("/proc/self/maps")
_CGROUP_MAX = Path("/sys/fs/cgroup/memory.max")
_STATUS = Path("/proc/self/status")


def resident_bytes(pid: int | None = None) -> int:
    """Returns the resident memory of a process (default: this one) in bytes; 0 if the process is gone, or where its
    memory cannot be known."""
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * PAGESIZE
    except (OSError, ValueError):
        return 0


def resident_bytes_peak() -> int:
    """Returns the most resident memory that this process ever held, in bytes; 0 where that cannot be known."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    line = next((line for line in lines if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) << 10


def let_go(folder: str) -> int:
    """Drops the mapped pages of the LMDB file in `folder`. Returns by how many bytes resident memory fell, at least 0.

    Does nothing if the process may open no further file: this only saves memory, and is no reason to stop.
    """
    before = resident_bytes()
    try:
        name = str(Path(folder).resolve() / LMDB_FILE)
        for line in _MAPS.read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5] == name and "w" not in fields[1]:
                start, end = (int(edge, 16) for edge in fields[0].split("-"))
                _drop(start, min(end - start, Path(name).stat().st_size))
    except OSError:
        return 0
    return max(0, before - resident_bytes())


def _drop(start: int, size_bytes: int) -> None:
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for offset in range(0, size_bytes, STEP_BYTES):
        madvise(start + offset, min(STEP_BYTES, size_bytes - offset), MADV_DONTNEED)


def fits_memory(path: Path) -> bool:
    """Returns whether a file is so small compared with this machine's memory that read-ahead is useful. True also for a
    file that does not exist yet."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * PAGESIZE
    return not path.exists() or path.stat().st_size < memory_bytes // STORE_MEMORY_SHARE


def warm_file(path: Path) -> None:
    """Has the kernel read a file into its page cache, if the file fits memory. Blocks meanwhile."""
    if not fits_memory(path) or not hasattr(os, "posix_fadvise"):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, path.stat().st_size, STEP_BYTES):
            os.posix_fadvise(fd, offset, STEP_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(fd)


def memory_mib_default() -> int:
    """Returns a quarter of the memory that this process may use, in MiB, but at least MEMORY_BYTES_MIN. It may use the
    machine's memory, or its control group's limit if that is less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGESIZE]
    try:
        limits.append(int(_CGROUP_MAX.read_text()))
    except (OSError, ValueError):
        pass  # No control group, or none with a limit ("max").
    return max(MEMORY_BYTES_MIN, min(limits) // 4) >> 20
