"""A slice node whose disk, clock or checkpoints fail while a file of that name lies in the folder FAULTS names.

    full           the journal's disk has no space
    checkpoints    every checkpoint fails, as with a quota
    clock          the machine's clock; the file says by how many seconds it jumped
    slow           the node does nothing between its claim and its start; it makes `slow now`

Run as `python -m tests.slice_node.faulty_node ARGUMENTS` with FAULTS=DIR in the environment.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path
from typing import Any

from shoal_contract.errors import ResourceExhausted
from shoal_contract.partition_map import PartitionMap
from shoal_slice_node.adapters import claiming, limits
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.main import main
from shoal_slice_node.storage.files import DiskFile

FOLDER = "FAULTS"
LEASE = "LEASE_S"
STARTED = "STARTED_WAIT_S"
_write_at = DiskFile.write_at
_checkpoint = Store.checkpoint
_time_ns = time.time_ns
_owned_bytes = claiming.owned_bytes


def _has(fault: str) -> bool:
    return Path(os.environ[FOLDER], fault).exists()


def _write_or_full(file: DiskFile, position: int, data: bytes) -> None:
    if _has("full") and data.strip(b"\0"):  # Zeros are written over what was written in part.
        raise OSError(errno.ENOSPC, "No space left on device")
    _write_at(file, position, data)


async def _checkpoint_or_fail(store: Store) -> dict[str, Any]:
    if _has("checkpoints"):
        raise ResourceExhausted("no space for a checkpoint", subject="checkpoint")
    return await _checkpoint(store)


def _jumped_time_ns() -> int:
    try:
        jump_s = int(Path(os.environ[FOLDER], "clock").read_text() or 0)
    except FileNotFoundError:
        jump_s = 0
    return _time_ns() + jump_s * 1_000_000_000


def _owned_bytes_slowly(partition_map: PartitionMap, slice_name: str) -> bytes:
    if _has("slow"):
        Path(os.environ[FOLDER], "slow now").touch()
        while _has("slow"):  # The whole process stands still for its lease: so would SIGSTOP have it.
            time.sleep(0.01)
    return _owned_bytes(partition_map, slice_name)


if __name__ == "__main__":
    DiskFile.write_at = _write_or_full  # type: ignore[method-assign,assignment]
    Store.checkpoint = _checkpoint_or_fail  # type: ignore[method-assign,assignment]
    time.time_ns = _jumped_time_ns
    claiming.owned_bytes = _owned_bytes_slowly
    if LEASE in os.environ:
        setattr(claiming, LEASE, int(os.environ[LEASE]))
    if STARTED in os.environ:
        setattr(limits, STARTED, int(os.environ[STARTED]))
    sys.exit(main())
