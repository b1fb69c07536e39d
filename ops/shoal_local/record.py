"""Keeps what a local cluster remembers of itself in its data folder: slices, addresses, its id.

```
local-cluster.json   {"form": "shoal local cluster 1", "id": "0123...", "slices": ["s01"],
                      "ports": {"s01": 20123, "s01/http": 20124, "etcd": 20125, "etcd/peers": 20126}}
```
Every process that starts again listens at its address of before. Belongs here: the record and its file. Does not: the
lock on the folder (folder.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shoal_contract.errors import Corrupt
from shoal_local.files import write_whole
from shoal_local.ports import HOST, free_port, is_free

RECORD: Final = "local-cluster.json"
FORM: Final = "shoal local cluster 1"
ETCD: Final = "etcd"
ETCD_PEERS: Final = "etcd/peers"


@dataclass(slots=True)
class LocalRecord:
    """A local cluster's record. `ports`: role -> port; a slice's name is the role of its gRPC port. `id`: the
    cluster's; empty: not made yet."""

    slices: list[str]
    ports: dict[str, int] = field(default_factory=dict)
    id: str = ""

    @property
    def roles(self) -> list[str]:
        """Returns the roles: everything that has a port of its own."""
        return [ETCD, ETCD_PEERS, *(role for name in self.slices for role in (name, http_of(name)))]

    def address(self, role: str) -> str:
        """Returns host:port of a role, once ports are chosen."""
        return f"{HOST}:{self.ports[role]}"

    def choose_ports(self, taken: Collection[int] = ()) -> None:
        """Gives each role a port: the remembered one unless it is in `taken` or another program has it.

        Raises Unavailable.
        """
        for role in self.roles:
            port = self.ports.get(role, 0)
            if not port or port in taken or not is_free(port):
                self.ports[role] = free_port({*self.ports.values(), *taken})

    def save(self, folder: Path) -> None:
        text = json.dumps({"form": FORM, "id": self.id, "slices": self.slices, "ports": self.ports}, indent=1)
        write_whole(folder / RECORD, text + "\n")


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
        ports = {str(role): int(port) for role, port in found["ports"].items()}
        return LocalRecord([str(name) for name in found["slices"]], ports, str(found.get("id", "")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{path} cannot be read ({error}); it must be a {FORM}", subject=str(path)) from None
