"""Resident memory: how much this process holds, and letting go of pages that are only mapped from a file.

LMDB maps its file; every page ever read stays on this process's account until it is unmapped. `madvise(MADV_DONTNEED)`
on a shared file mapping only drops the page table entries: what was written stays in the page cache, and the next read
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
"""The file in an environment's folder: LMDB's own name for it."""

STEP_BYTES = 64 << 20
"""Dropped at one go: under a millisecond."""

_MAPS = Path("/proc/self/maps")
_CGROUP_MAX = Path("/sys/fs/cgroup/memory.max")
_STATUS = Path("/proc/self/status")


def resident_bytes(pid: int | None = None) -> int:
    """Memory of a process, of this one if none is named; 0 if it is gone, or where that cannot be known."""
    try:
        return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * PAGESIZE
    except (OSError, ValueError):
        return 0


def resident_bytes_peak() -> int:
    """The most this process ever held; 0 where that cannot be known."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return 0
    line = next((line for line in lines if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) << 10


def let_go(folder: str) -> int:
    """Drops the mapped pages of the LMDB file in `folder`. Returns resident bytes less than before, at least 0.

    Nothing happens where the process may open no further file: this is a saving, and no reason to stop.
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
    """Whether a file (absent: will) fits this machine's memory so well that neighbours of what is read are welcome."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * PAGESIZE
    return not path.exists() or path.stat().st_size < memory_bytes // STORE_MEMORY_SHARE


def warm_file(path: Path) -> None:
    """Has the kernel read a file that fits memory into its page cache. Blocks meanwhile."""
    if not fits_memory(path) or not hasattr(os, "posix_fadvise"):
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        for offset in range(0, path.stat().st_size, STEP_BYTES):
            os.posix_fadvise(fd, offset, STEP_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(fd)


def memory_mib_default() -> int:
    """A quarter of the memory that this process may use: the machine's, or its control group's if that is less."""
    limits = [os.sysconf("SC_PHYS_PAGES") * PAGESIZE]
    try:
        limits.append(int(_CGROUP_MAX.read_text()))
    except (OSError, ValueError):
        pass  # No control group, or none with a limit ("max").
    return max(MEMORY_BYTES_MIN, min(limits) // 4) >> 20
