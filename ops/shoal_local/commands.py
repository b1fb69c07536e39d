"""Makes the command lines of a local cluster's servers. Pure.

Belongs here: modules and arguments, without the interpreter. Does not: how they are started (process.py).
"""

from __future__ import annotations

from pathlib import Path

from shoal_local.addresses import ClientAddresses
from shoal_local.record import ETCD, LocalRecord, http_of

CLUSTER = "local"
ACCEPT_EMPTY = "--accept-empty"
"""The slice node's argument that lets it begin without its missing data, or with an old copy of it."""


def redirector_command(record: LocalRecord, addresses: ClientAddresses) -> list[str]:
    return ["shoal_redirector", "--listen", addresses.listen, "--http", addresses.http, *_where(record)]


def admin_command(addresses: ClientAddresses) -> list[str]:
    return ["shoal_ops", "admin", "--json", "--listen", addresses.admin, "--at", addresses.listen]


def node_command(record: LocalRecord, name: str, data: Path, archive: Path | None) -> list[str]:
    """Returns the command of a slice's node. Node n01 serves slice s01."""
    command = ["shoal_slice_node", "--slice", name, "--node", f"n{name.removeprefix('s')}"]
    command += ["--listen", record.address(name), "--http", record.address(http_of(name)), "--data", str(data)]
    command += [] if archive is None else ["--archive", str(archive)]
    return [*command, *_where(record)]


def _where(record: LocalRecord) -> list[str]:
    return ["--etcd", record.address(ETCD), "--cluster", CLUSTER]
