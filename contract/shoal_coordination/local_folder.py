"""The data folder of a local cluster: recognised, locked, wiped; the addresses that it remembers.

```
local-cluster.json   what makes it ours: {"form": "shoal local cluster 1", "slices": ["s01"], "ports": {"s01": 40123}}
owner                flock of the process that runs it, with its pid
etcd/  log/  s01/ s02/ ...
```
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
from dataclasses import dataclass, field
from pathlib import Path

from shoal_contract.errors import Conflict, Corrupt, OutOfRange, Unavailable
from shoal_coordination import limits

RECORD = "local-cluster.json"
OWNER = "owner"
FORM = "shoal local cluster 1"
HOST = "127.0.0.1"
SLICES_DEFAULT = 3
_OURS = re.compile(r"s\d\d|etcd|log|owner|local-cluster\.json(\.new)?")


@dataclass(slots=True)
class LocalRecord:
    """`ports`: of slice nodes, by slice, so that a node that starts again keeps its address."""

    slices: list[str]
    ports: dict[str, int] = field(default_factory=dict)


class LocalFolder:
    """Locked from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self, slices: int | None, fresh: bool) -> LocalRecord:
        """Locks the folder and returns its record, made if it is new. `slices` None: as remembered, or 3.

        Raises Conflict when the folder is in use, is not ours, or has another number of slices; Corrupt when its
        record cannot be read; OutOfRange.
        """
        count = SLICES_DEFAULT if slices is None else slices
        if not 0 < count <= limits.LOCAL_SLICES_MAX:
            maximum = limits.LOCAL_SLICES_MAX
            raise OutOfRange(
                f"{count} slices asked for; 1 to {maximum} can run here", limit=maximum, value=max(0, count)
            )
        self._check_ours()
        self.path.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            if fresh:
                self._wipe()
            return self._record(slices, count)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlocks it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def save(self, record: LocalRecord) -> None:
        """Whole or not at all."""
        new = self.path / f"{RECORD}.new"
        text = json.dumps({"form": FORM, "slices": record.slices, "ports": record.ports}, indent=1)
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(self.path / RECORD)

    def choose_ports(self, record: LocalRecord) -> None:
        """A port for each slice: the remembered one unless another program has it. Saves them. Raises Unavailable."""
        taken = set(record.ports.values())
        for name in record.slices:
            port = record.ports.get(name, 0)
            if not port or not _is_free(port):
                port = _free_port(taken)
                taken.add(port)
            record.ports[name] = port
        self.save(record)

    def _check_ours(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise Conflict(f"{self.path} is not a folder; choose another --data", subject=str(self.path))
        if not self.path.is_dir() or (self.path / RECORD).is_file():
            return
        if foreign := sorted(entry.name for entry in self.path.iterdir() if entry.name != OWNER):
            raise Conflict(
                f"{self.path} is not a Shoal data folder: it has {foreign[0]} and no {RECORD}. Nothing was touched;"
                " choose another --data",
                subject=str(self.path),
            )

    def _take_lock(self) -> None:
        lock = os.open(self.path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            os.close(lock)
            raise Conflict(
                f"{self.path} is in use by process {owner}: stop it first, or choose another --data",
                subject=str(self.path),
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _wipe(self) -> None:
        """Only what we make; the lock stays held. The record goes last: until then the folder is still ours."""
        ours = [entry for entry in self.path.iterdir() if _OURS.fullmatch(entry.name) and entry.name != OWNER]
        for entry in sorted(ours, key=lambda entry: entry.name == RECORD):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _record(self, slices: int | None, count: int) -> LocalRecord:
        path = self.path / RECORD
        if not path.is_file():
            record = LocalRecord([f"s{number:02}" for number in range(1, count + 1)])
            self.save(record)
            return record
        record = _read(path)
        if slices is not None and slices != len(record.slices):
            have = len(record.slices)
            raise Conflict(
                f"{self.path} holds a cluster of {have} slices, not {slices}: leave out --slices to run it,"
                " or start anew with --fresh",
                subject=str(self.path), limit=have, value=slices,
            )  # fmt: skip
        return record


def _free_port(taken: set[int]) -> int:
    """At random, so that clusters that start together rarely choose the same."""
    for _ in range(limits.LOCAL_PORT_ATTEMPTS_MAX):
        port = secrets.choice(limits.LOCAL_PORTS)
        if port not in taken and _is_free(port):
            return port
    raise Unavailable(f"no free port found from {limits.LOCAL_PORTS.start} on", subject="ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _read(path: Path) -> LocalRecord:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["form"] != FORM:
            raise ValueError(f"its form is {found['form']!r}")
        return LocalRecord([str(name) for name in found["slices"]], {str(k): int(v) for k, v in found["ports"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{path} cannot be read ({error}); it must be a {FORM}", subject=str(path)) from None
