"""A checkpointer whose disk stays full holds no more memory after many tries than after a few (operator brief, H1)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.processes.checkpointer import Checkpointer
from shoal_slice_node.storage.folder_lock import lock_folder
from shoal_slice_node.storage.mapped_memory import resident_bytes
from shoal_slice_node.storage.store_room import StoreRoom

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


def test_a_refusal_that_is_told_again_keeps_nothing_of_those_who_were_told_before(tmp_path: Path) -> None:
    """An exception that is raised again keeps the frames of every raise, with all that their variables hold."""
    room = StoreRoom(tmp_path)
    (tmp_path / "data.mdb").write_bytes(bytes(100))
    assert room.failed(28, 100) is not None
    room._free_blocks_wanted, room._look_again_s = 1 << 62, time.monotonic() + 3_600
    raised: list[ResourceExhausted] = []
    for _ in range(2):
        with pytest.raises(ResourceExhausted) as caught:
            room.check()
        raised.append(caught.value)
    assert raised[0] is not raised[1] and raised[0].message == raised[1].message
