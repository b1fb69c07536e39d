"""Recognises, locks and wipes the data folder of a local cluster.

```
local-cluster.json   the record that makes the folder ours (record.py)
owner                flock of the process that runs it, with its pid
etcd/  log/  s01/ s02/ ...
```
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from pathlib import Path
from typing import Final

from shoal_contract.data_folder import check_not_data
from shoal_contract.errors import Conflict, OutOfRange
from shoal_local import limits
from shoal_local.files import check_archive, check_folder, make_folder, named, open_file
from shoal_local.record import FORM, RECORD, LocalRecord, read_record

OWNER: Final = "owner"
SLICES_DEFAULT: Final = 3
_SLICE = re.compile(r"s\d\d")
_OURS = re.compile(r"s\d\d|etcd|log|owner|local-cluster\.json(\.new)?")


class LocalFolder:
    """Keeps a data folder, which is locked from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def check(self, slices: int | None) -> None:
        """Raises the errors of `open`, as far as they can be known without making or changing anything."""
        if slices is not None and not 0 < slices <= limits.SLICES_MAX:
            maximum = limits.SLICES_MAX
            raise OutOfRange(
                f"{slices} slices asked for; 1 to {maximum} can run here", limit=maximum, value=max(0, slices)
            )
        if not self.path.exists():
            return
        check_folder(self.path)
        self._check_ours()
        if (self.path / OWNER).exists():
            os.close(self._locked())

    def check_archive(self, archive: Path) -> None:
        """Raises Conflict if an archive would lie where this cluster's data is, or another's, or a node's: a cluster
        deletes its folders when it starts anew (`--fresh`)."""
        check_archive(archive)
        check_not_data(archive)
        at, own = archive.resolve(), self.path.resolve()
        for place in (at, *at.parents):
            if place == own or (place / RECORD).is_file():
                self._check_apart(archive, place, at.relative_to(place).parts)
        if own.is_relative_to(at) and own != at and _SLICE.fullmatch(own.relative_to(at).parts[0]):
            what = f"it would have the segments of slice {own.relative_to(at).parts[0]} where {self.path} is"
            raise Conflict(f"--archive {archive}: {what}; choose another folder", subject=str(archive))

    @staticmethod
    def _check_apart(archive: Path, cluster: Path, below: tuple[str, ...]) -> None:
        if not below:
            problem = "is a local cluster's data folder, and its segments would lie within its slices' data"
        elif _OURS.fullmatch(below[0]):
            problem = (
                f"lies in {cluster / below[0]}, which is a local cluster's own and goes when it starts with --fresh"
            )
        else:
            return
        raise Conflict(f"--archive {archive} {problem}; choose another folder, as archive/", subject=str(archive))

    def open(self, slices: int | None, fresh: bool) -> LocalRecord:
        """Locks the folder and returns its record; makes both if new. `slices` None: as many as remembered, or 3.

        Raises Conflict if the folder is in use, is not ours, or has another number of slices; Corrupt if its record
        cannot be read; OutOfRange.
        """
        self.check(slices)
        new = make_folder(self.path)
        try:
            self._lock = self._locked()
            with named("write", self.path / OWNER):
                os.ftruncate(self._lock, 0)
                os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
            if fresh:
                self._wipe()
            return self._record(slices)
        except BaseException:
            self.close()
            if new:
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def close(self) -> None:
        """Unlocks the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check_ours(self) -> None:
        if (self.path / RECORD).is_file():
            return
        found = sorted(entry.name for entry in self.path.iterdir() if entry.name != OWNER)
        slices = [name for name in found if _SLICE.fullmatch(name)]
        if "etcd" in found and slices:
            text = json.dumps({"form": FORM, "slices": slices, "ports": {}})
            raise Conflict(
                f"{self.path} has etcd and {', '.join(slices)}, but no {RECORD}: it was lost, or this is another"
                f" program's folder. Nothing was touched. If it is a Shoal cluster's, write this into {RECORD}, with"
                f" all its slices, and start again: {text}",
                subject=str(self.path),
            )
        if found:
            raise Conflict(
                f"{self.path} is not a Shoal data folder: it has {found[0]} and no {RECORD}. Nothing was touched;"
                " choose another --data",
                subject=str(self.path),
            )

    def _locked(self) -> int:
        """Returns a descriptor of the owner's file, locked. Raises Conflict with the pid of the process that has the
        lock."""
        lock = open_file(self.path / OWNER, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise Conflict(
                f"{self.path} is in use by process {owner}: stop it first, or choose another --data",
                subject=str(self.path),
            ) from None
        return lock

    def _wipe(self) -> None:
        """Deletes only what we make; the lock stays held. The record goes last: until then the folder is still ours."""
        ours = [entry for entry in self.path.iterdir() if _OURS.fullmatch(entry.name) and entry.name != OWNER]
        for entry in sorted(ours, key=lambda entry: entry.name == RECORD):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _record(self, slices: int | None) -> LocalRecord:
        if not (self.path / RECORD).is_file():
            count = SLICES_DEFAULT if slices is None else slices
            record = LocalRecord([f"s{number:02}" for number in range(1, count + 1)])
            record.save(self.path)
            return record
        record = read_record(self.path)
        if slices is not None and slices != len(record.slices):
            have = len(record.slices)
            raise Conflict(
                f"{self.path} holds a cluster of {have} slices, not {slices}: leave out --slices to run it,"
                " or start anew with --fresh",
                subject=str(self.path), limit=have, value=slices,
            )  # fmt: skip
        return record
