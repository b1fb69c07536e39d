"""A disk in memory that loses, tears and fails as real ones may. Implements storage/files.Files.

What is written is seen at once and survives a power loss only after its sync; of the rest any 512-byte sectors may
have reached the disk, in any order. Names survive after their folder's sync; of later changes a prefix may have (a
journaling file system). `steps_left` counts operations down to a power loss (`PowerLoss`); `after_power_loss` is what
is then found. After a kill of the process everything is found as it was seen, and still not synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

from shoal_slice_node.storage.files import File

SECTOR_BYTES = 512


class PowerLoss(BaseException):
    """Not an Exception: nothing may catch it and go on."""


class Node:
    """One file's bytes: as seen, and as on disk."""

    def __init__(self, content: bytes = b"") -> None:
        self.seen = bytearray(content)
        self.disk = bytearray(content)
        self.unsynced: list[tuple[int, bytes]] = []

    def lose_power(self, random: Random) -> bytes:
        """The disk's bytes with some sectors of what was not synced."""
        found = bytearray(self.disk)
        chance = random.choice((0.0, 0.5, 0.9, 1.0))
        for position, data in self.unsynced:
            cut = 0
            while cut < len(data):
                end = min(len(data), cut + SECTOR_BYTES - (position + cut) % SECTOR_BYTES)
                if random.random() < chance:
                    _write(found, position + cut, data[cut:end])
                cut = end
        return bytes(found)


class FaultyFile:
    def __init__(self, files: FaultyFiles, node: Node) -> None:
        self._files = files
        self._node = node
        self._open = True
        files.open_files += 1

    def write_at(self, position: int, data: bytes) -> None:
        assert self._open, "written after its end"
        if self._files.write_error is not None and (data.strip(b"\0") or not self._files.zeros_fit):
            half = data[: len(data) // 2]
            self._node.unsynced.append((position, half))
            _write(self._node.seen, position, half)
            raise OSError(self._files.write_error, "faulty write")
        self._node.unsynced.append((position, data))
        _write(self._node.seen, position, data)
        self._files.step()

    def allocate(self, size_bytes: int) -> None:
        if size_bytes > self._files.free_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._files.free_bytes -= size_bytes
        _write(self._node.seen, size_bytes - 1, b"\0")
        self._node.unsynced.append((size_bytes - 1, b"\0"))
        self._files.step()

    def sync(self) -> None:
        if self._files.sync_error:
            self._node.unsynced.clear()  # the kernel drops the dirty pages and says so once
            self._files.sync_error = False
            raise OSError(self._files.sync_code, "faulty sync")
        self._files.step()
        self._node.disk = bytearray(self._node.seen)
        self._node.unsynced.clear()

    def close(self) -> None:
        assert self._open, "closed twice"
        self._open = False
        self._files.open_files -= 1


class FaultyFiles:
    """See files.Files."""

    def __init__(self, disk: dict[Path, Node] | None = None) -> None:
        self._disk = dict(disk or {})
        self._seen = dict(self._disk)
        self._changes: list[Callable[[dict[Path, Node]], object]] = []
        self.steps_left = 1 << 60
        self.steps_done = 0
        self.free_bytes = 1 << 60
        self.sync_error = False
        self.sync_code = errno.EIO
        self.write_error: int | None = None
        self.zeros_fit = False
        """Zeros are written even where `write_error` is set."""
        self.open_errors: dict[str, int] = {}
        """By operation: "create", "open", "read" or "sync folder"."""
        self.open_files = 0
        self.links = True

    def step(self) -> None:
        """An operation has had its effect on what is seen; the power may go now."""
        self.steps_done += 1
        self.steps_left -= 1
        if self.steps_left == 0:
            raise PowerLoss

    def after_power_loss(self, random: Random) -> FaultyFiles:
        names = dict(self._disk)
        for change in self._changes[: random.randint(0, len(self._changes))]:
            change(names)
        return FaultyFiles({path: Node(node.lose_power(random)) for path, node in names.items()})

    def flip(self, path: Path, position: int) -> None:
        """One bit of what is on disk."""
        self._seen[path].seen[position] ^= 4
        self._seen[path].disk[position] ^= 4

    def paths(self) -> list[Path]:
        return sorted(self._seen)

    def make_folder(self, folder: Path) -> None:
        pass

    def names(self, folder: Path) -> list[str]:
        return [path.name for path in list(self._seen) if path.parent == folder]

    def free_space_bytes(self, folder: Path) -> int:
        return self.free_bytes

    def read(self, path: Path) -> bytes:
        self._check_open("read")
        if path not in self._seen:
            raise FileNotFoundError(path)
        return bytes(self._seen[path].seen)

    def create(self, path: Path) -> File:
        self._check_open("create")
        if path in self._seen:
            raise FileExistsError(path)
        node = Node()
        self._change(lambda names: names.__setitem__(path, node))
        return FaultyFile(self, node)

    def open(self, path: Path) -> File:
        self._check_open("open")
        return FaultyFile(self, self._seen[path])

    def _check_open(self, operation: str) -> None:
        if operation in self.open_errors:
            raise OSError(self.open_errors[operation], f"faulty {operation}")

    def rename(self, path: Path, to: Path) -> None:
        self._change(lambda names: names.__setitem__(to, names.pop(path)))

    def link(self, path: Path, to: Path) -> None:
        if not self.links:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        if to in self._seen:
            raise FileExistsError(to)
        node = self._seen[path]
        self._change(lambda names: names.__setitem__(to, node))

    def remove(self, path: Path) -> None:
        if path not in self._seen:
            raise FileNotFoundError(path)
        self._change(lambda names: names.pop(path))

    def sync_folder(self, folder: Path) -> None:
        self._check_open("sync folder")
        self.step()
        self._disk = dict(self._seen)
        self._changes.clear()

    def _change(self, change: Callable[[dict[Path, Node]], object]) -> None:
        change(self._seen)
        self._changes.append(change)
        self.step()


def _write(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position + len(data):
        content.extend(bytes(position + len(data) - len(content)))
    content[position : position + len(data)] = data
