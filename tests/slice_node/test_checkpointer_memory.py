"""A checkpointer whose disk stays full holds no more memory after many tries than after a few (operator brief, H1)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.processes import checkpointer as checkpointer_module
from shoal_slice_node.processes.checkpointer import Checkpointer
from shoal_slice_node.storage.folder_lock import lock_folder
from shoal_slice_node.storage.mapped_memory import resident_bytes

from .small_disks import small_disk

MIB = 1 << 20
TRIES = 20
DELTA_BYTES = 8 * MIB


def delta() -> Any:
    bodies = (os.urandom(1 << 10) for _ in range(DELTA_BYTES >> 10))
    yield "rows", "producer", [part for number, body in enumerate(bodies) for part in (b"%08d" % number, body)]


async def refused(checkpointer: Checkpointer) -> int:
    """Has one more try fail. Returns the resident memory after it."""
    with pytest.raises(ResourceExhausted, match="no disk space for the checkpoint"):
        await checkpointer.write(delta(), 7)
    return resident_bytes(checkpointer.pid)


async def test_tries_that_fail_on_a_full_disk_leave_nothing_in_memory(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 6) as disk:
        lock_fd = await lock_folder(disk)
        checkpointer = await Checkpointer.start(disk, lock_fd)
        try:
            for _ in range(3):
                few = await refused(checkpointer)
            for _ in range(TRIES):
                many = await refused(checkpointer)
            assert many - few < 3 * DELTA_BYTES, f"{few / MIB:.0f} MiB, then {many / MIB:.0f} MiB"
        finally:
            await checkpointer.close()
            os.close(lock_fd)


async def test_a_checkpointer_that_hangs_is_killed_when_its_node_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node never ended, and so was not started again."""
    monkeypatch.setattr(checkpointer_module, "CHECKPOINTER_END_S_MAX", 0.2)
    lock_fd = await lock_folder(tmp_path)
    checkpointer = await Checkpointer.start(tmp_path, lock_fd)
    os.kill(checkpointer.pid, signal.SIGSTOP)
    async with asyncio.timeout(30):
        await checkpointer.close()
    os.close(lock_fd)
    assert checkpointer.ending == f"process {checkpointer.pid} ended by signal 9"
