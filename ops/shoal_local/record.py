"""Keeps what a local cluster remembers of itself in its data folder: slices, addresses, its id.

```
local-cluster.json   {"form": "shoal local cluster 1", "id": "0123...", "slices": ["s01"],
                      "ports": {"s01": 20123, "s01/http": 20124, "etcd": 20125, "etcd/peers": 20126},
                      "lives": {"s01": {"epoch": 3, "incarnation": "89ab...", "lsn": 120}},
                      "place": {"path": "/home/anna/shoal-data", "inode": "2049:131"}}
```
`lives` is a copy of what etcd knows of each slice that was led, so that the loss of etcd's records is noticed.
`place` is where the folder was at its last start; the record of a copy has the original's.
Every process that starts again listens at its address of before. Belongs here: the record and its file. Does not: the
lock on the folder (folder.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shoal_contract.errors import Corrupt
from shoal_local.files import write_whole
from shoal_local.limits import PORT_MAX, SLICES_MAX
from shoal_local.ports import HOST, free_port, is_free

RECORD: Final = "local-cluster.json"
FORM: Final = "shoal local cluster 1"
ETCD: Final = "etcd"
ETCD_PEERS: Final = "etcd/peers"


@dataclass(frozen=True, slots=True)
class Life:
    """Holds what etcd knew of a slice that was led: epoch, incarnation of its data, and the last LSN that was told."""

    epoch: int
    incarnation: str
    lsn: int


@dataclass(slots=True)
class LocalRecord:
    """Keeps a local cluster's record. `ports`: role -> port; a slice's name is the role of its gRPC port. `id`: the
    cluster's; empty: not made yet. `lives`: slice -> its life, of the slices that were led. `place`: path and inode of
    its folder at the last start; empty: not known."""

    slices: list[str]
    ports: dict[str, int] = field(default_factory=dict)
    id: str = ""
    lives: dict[str, Life] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)

    @property
    def roles(self) -> list[str]:
        """Returns the roles: everything that has a port of its own."""
        return [ETCD, ETCD_PEERS, *(role for name in self.slices for role in (name, http_of(name)))]

    def address(self, role: str) -> str:
        """Returns host:port of a role, once ports are chosen."""
        return f"{HOST}:{self.ports[role]}"

    def choose_ports(self, taken: Collection[int] = ()) -> dict[str, int]:
        """Gives each role a port: the remembered one unless it is in `taken` or another program has it. Returns role ->
        remembered port, of the roles that got another one.

        Raises Unavailable.
        """
        replaced: dict[str, int] = {}
        for role in self.roles:
            port = self.ports.get(role, 0)
            if not port or port in taken or not is_free(port):
                self.ports[role] = free_port({*self.ports.values(), *taken})
                replaced |= {role: port} if port else {}
        return replaced

    def settle(self, folder: Path) -> str:
        """Notes where the folder is now. Returns the path where it was, if neither path nor inode is the same: then it
        is a copy, or was moved between file systems. Else returns ""."""
        found = folder.stat()
        was, self.place = self.place, {"path": str(folder.resolve()), "inode": f"{found.st_dev}:{found.st_ino}"}
        return "" if not was or was.items() & self.place.items() else was.get("path", "?")

    def save(self, folder: Path) -> None:
        lives = {name: asdict(life) for name, life in self.lives.items()}
        told = {"form": FORM, "id": self.id, "slices": self.slices, "ports": self.ports, "lives": lives}
        told |= {"place": self.place} if self.place else {}
        write_whole(folder / RECORD, json.dumps(told, indent=1) + "\n")


def http_of(slice_name: str) -> str:
    """Returns the role of a slice node's HTTP: health and metrics."""
    return f"{slice_name}/http"


def read_record(folder: Path) -> LocalRecord:
    """Returns the record of a local cluster's folder. Raises Corrupt, OSError if there is none."""
    path = folder / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["form"] != FORM:
            raise ValueError(f"its form is {found['form']!r}")
        ports = {role: _port(role, port) for role, port in found["ports"].items()}
        lives = {name: _life(name, life) for name, life in found.get("lives", {}).items()}
        slices = found["slices"]
        if not isinstance(slices, list) or not all(isinstance(name, str) for name in slices):
            raise ValueError("its slices are no list of names")
        if not 0 < len(slices) <= SLICES_MAX:
            raise ValueError(f"it has {len(slices)} slices; 1 to {SLICES_MAX} can run here")
        place = {str(what): str(value) for what, value in found.get("place", {}).items()}
        return LocalRecord(slices, ports, str(found.get("id", "")), lives, place)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(f"{path} cannot be read ({error}); it must be a {FORM}", subject=str(path)) from None


def _port(role: str, port: object) -> int:
    number = _number(f"port of {role}", port)
    if not 0 < number <= PORT_MAX:
        raise ValueError(f"port {number} of {role} is not in 1 to {PORT_MAX}")
    return number


def _life(name: str, found: dict[str, Any]) -> Life:
    epoch, lsn = (_number(f"{what} of {name}", found[what]) for what in ("epoch", "lsn"))
    return Life(epoch, str(found["incarnation"]), lsn)


def _number(what: str, found: object) -> int:
    if type(found) is not int:
        raise ValueError(f"{what} is {found!r}, which is no whole number")
    return found
