"""A checkpoint on a full disk is refused and tried again, and a broken disk is damage: LMDB says EIO for both (operator
brief 3, H1)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import pytest

from shoal_contract.errors import Corrupt, ResourceExhausted
from shoal_slice_node.processes.checkpointer_process import _Kept, _written
from shoal_slice_node.storage.checkpoint_writer import CheckpointWriter
from shoal_slice_node.storage.limits import STORE_RESERVE_BYTES
from shoal_slice_node.storage.lmdb_layout import DATA_FILE
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.store_room import StoreRoom

from .small_disks import file_bytes_at_most, fill, free_bytes, small_disk

MIB = 1 << 20
ROWS = 4_000
ROW = bytes(1_000)


def pieces(rows: int = ROWS) -> list[Any]:
    """A delta of about 4 MiB."""
    flat = [part for number in range(rows) for part in (b"%08d" % number, ROW + b"%d" % number)]
    return [("rows", "producer", flat)]


def found(folder: Path) -> tuple[int, int]:
    """The checkpoint's LSN and its rows."""
    base = LmdbBase(folder)
    try:
        return base.lsn, base.rows("producer").entries()
    finally:
        base.close()


def test_a_disk_that_fills_during_a_checkpoint_is_full_and_not_broken(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 3) as disk:
        kept = _Kept(disk)
        kept.writer()
        before = free_bytes(disk)
        for _ in range(3):
            with pytest.raises(ResourceExhausted, match=r"no disk space for the checkpoint.*Make room") as caught:
                _written(kept, pieces(), 7)
            kept.close()
            assert caught.value.subject == "disk bytes"
            assert free_bytes(disk) == before, "what the failed write took is given back"
        assert found(disk) == (0, 0)


def test_a_checkpoint_is_written_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12) as disk:
        CheckpointWriter(disk).close()
        (disk / DATA_FILE).open("r+b").truncate(128 << 10)  # Without a reserve, as if there had been no room.
        filler = fill(disk, 2 * MIB)
        kept = _Kept(disk)
        with pytest.raises(ResourceExhausted):
            _written(kept, pieces(), 7)
        filler.unlink()
        assert _written(kept, pieces(), 7)["fields"] == 2 * ROWS
        kept.close()
        assert found(disk) == (7, ROWS)


def test_a_small_checkpoint_has_room_on_a_full_disk(tmp_path: Path) -> None:
    """It is what releases the journal. A large one before it leaves it the room."""
    with small_disk(tmp_path / "disk", 12) as disk:
        kept = _Kept(disk)
        assert _written(kept, pieces(1), 1)
        fill(disk)
        for lsn in range(2, 6):
            with pytest.raises(ResourceExhausted):
                _written(kept, pieces(8_000), lsn)
            kept.close()
            assert _written(kept, pieces(100), lsn)["fields"] == 200
        assert free_bytes(disk) == 0
        kept.close()
        assert found(disk)[0] == 5


def test_a_store_has_its_reserve_again_after_each_checkpoint(tmp_path: Path) -> None:
    """It was there only after a start, and the next checkpoint that was larger took it."""
    kept = _Kept(tmp_path)
    kept.writer()
    for lsn, rows in enumerate((100, 8_000, 16_000), 1):
        _written(kept, pieces(rows), lsn)
        writer = kept.writer()
        size_bytes = (tmp_path / DATA_FILE).stat().st_size
        assert size_bytes >= writer._used_bytes() + STORE_RESERVE_BYTES // 2
    kept.close()


def test_nothing_is_cut_off_a_file_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may have a newer meta page than the one that is seen, which needs the pages above."""

    def failing(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    CheckpointWriter(tmp_path).close()
    size = (tmp_path / DATA_FILE).stat().st_size
    with (tmp_path / DATA_FILE).open("ab") as file:
        file.write(bytes(MIB))
    monkeypatch.setattr("os.fsync", failing)
    assert StoreRoom(tmp_path).failed(errno.ENOSPC, size) is not None
    assert (tmp_path / DATA_FILE).stat().st_size == size + MIB
    monkeypatch.undo()
    assert StoreRoom(tmp_path).failed(errno.ENOSPC, size) is not None, "what it has beyond is no reserve that it knows"
    assert (tmp_path / DATA_FILE).stat().st_size == size


def test_a_store_that_has_no_room_to_be_made_is_no_damage(tmp_path: Path) -> None:
    with file_bytes_at_most(10 << 10), pytest.raises(ResourceExhausted, match="may not grow"):
        CheckpointWriter(tmp_path)
    CheckpointWriter(tmp_path).close()
    assert found(tmp_path) == (0, 0)


def test_a_file_that_may_not_grow_is_no_damage(tmp_path: Path) -> None:
    """As with `ulimit -f`, which no look at the disk's free space could find."""
    kept = _Kept(tmp_path)
    with file_bytes_at_most(MIB):
        kept.writer()
    with file_bytes_at_most(MIB), pytest.raises(ResourceExhausted, match=r"may not grow: File too large\. Raise"):
        _written(kept, pieces(), 7)
    kept.close()
    assert (tmp_path / DATA_FILE).stat().st_size < MIB
    assert _written(kept, pieces(), 7)["fields"] == 2 * ROWS
    kept.close()
    assert found(tmp_path) == (7, ROWS)


def broken_write() -> lmdb.Error:
    """What LMDB raises where the disk is broken."""
    error = lmdb.Error("mdb_txn_commit: Input/output error", errno.EIO)
    vars(error)["code"] = errno.EIO  # As LMDB's own errors have it; what is made here has not.
    return error


class BrokenDisk:
    """An LMDB environment whose commits fail with EIO, `times` times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def into(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = CheckpointWriter._write

        def write(writer: CheckpointWriter, transaction: Any, gathered: Any) -> list[bytes]:
            emptied = real(writer, transaction, gathered)
            if self.times:
                self.times -= 1
                raise broken_write()
            return emptied

        monkeypatch.setattr(CheckpointWriter, "_write", write)


def test_a_broken_disk_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept = BrokenDisk(2), _Kept(tmp_path)
    disk.into(monkeypatch)
    with pytest.raises(Corrupt, match="Input/output error"):
        _written(kept, pieces(), 7)
    kept.close()
    assert disk.times == 0 and found(tmp_path) == (0, 0)


def test_an_error_while_room_was_made_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = _Kept(tmp_path)
    BrokenDisk(1).into(monkeypatch)
    assert _written(kept, pieces(), 7)["written_again"] == 1
    kept.close()
    assert found(tmp_path) == (7, ROWS)


def test_a_write_is_repeated_only_when_what_is_seen_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed write may have left a newer meta page on disk; a repeat reuses the pages which that one refers to."""
    CheckpointWriter(tmp_path).close()
    done: list[str] = []

    def failing(*_: object) -> None:
        done.append("write")
        raise broken_write()

    def rewritten(file: int, data: bytes, position: int) -> int:
        done.append(f"{len(data)} bytes at {position}")
        return pwrite(file, data, position)

    def synced(file: int) -> None:
        done.append("sync")
        if done.count("sync") > 1:
            raise OSError(errno.EIO, "Input/output error")

    pwrite = os.pwrite
    monkeypatch.setattr(CheckpointWriter, "_write", failing)
    monkeypatch.setattr(os, "pwrite", rewritten)
    monkeypatch.setattr(os, "fsync", synced)
    metas = f"{min(128 << 10, (tmp_path / DATA_FILE).stat().st_size)} bytes at 0"
    kept = _Kept(tmp_path)
    with pytest.raises(Corrupt, match="cannot be written and synced"):
        _written(kept, pieces(1), 7)
    assert done == [metas, "sync", "write", metas, "sync"], "no second write"


def test_the_lock_file_has_all_its_blocks_before_readers_need_them(tmp_path: Path) -> None:
    CheckpointWriter(tmp_path).close()
    lock = (tmp_path / "lock.mdb").stat()
    assert lock.st_blocks * 512 >= lock.st_size > 4096


@pytest.mark.parametrize("operation", ["open", "pwrite", "fsync"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [(errno.ENOSPC, ResourceExhausted), (errno.EDQUOT, ResourceExhausted), (errno.EACCES, Corrupt)],
)
def test_a_disk_without_room_for_meta_pages_is_full_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, code: int, expected: type[Exception]
) -> None:
    """Where pages are never written in place (btrfs, ZFS), and with quotas of NFS."""

    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    CheckpointWriter(tmp_path).close()
    monkeypatch.setattr(os, operation, failing)
    with pytest.raises(expected, match=os.strerror(code)):
        CheckpointWriter(tmp_path)


OPENS_ALONE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
"""
"""What LMDB asks when it opens an environment: if no other process has it open, it makes readers and locks anew."""


def test_no_process_thinks_that_it_is_alone_while_a_writer_is_open(tmp_path: Path) -> None:
    def opens_alone() -> bool:
        command = [sys.executable, "-c", OPENS_ALONE, str(tmp_path / "lock.mdb")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    writer = CheckpointWriter(tmp_path)
    assert not opens_alone()
    writer.write(pieces(1), 1)
    assert not opens_alone()
    writer.close()
    assert opens_alone()
