"""Defines a cluster's records as stored: JSON values of etcd keys (keys.py). The partition map has its own form
(contract).

An older version ignores fields that a newer one adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from shoal_contract.errors import Malformed
from shoal_coordination.entries import Entry

Record = TypeVar("Record", "ClusterConfig", "NodeRecord", "SliceRecord")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Holds a cluster's config, written once. `partitions` is P for ever; `created_ms` is Unix time, in milliseconds.

    `id`: 32 random hex digits. Two clusters never share an id, whatever their names; slices' data carries it.
    """

    name: str
    partitions: int
    created_ms: int
    id: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("it has no id: a version of Shoal before cluster ids made it; make the cluster anew")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Describes a running node; the record is on the node's lease. `address` is host:port.

    `admin_address`: host:port of its administration and bulk transfer; empty: they listen at `address`.
    """

    node: str
    address: str
    slice: str
    admin_address: str = ""


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """Names a slice's leader, replicas and data. `epoch` grows with each new leader; 0: it never had one. `leader` is a
    node, `leader_address` host:port.

    `in_sync` is a part of `replicas`: the nodes that hold all that was acknowledged. Only they may lead.
    `incarnation`: 32 hex digits, the life of the slice's data; empty: it never had any. `lsn`: the last LSN of that
    data when it was last claimed, or when its leader stopped cleanly. Data that ends before it is an old copy.
    """

    name: str
    epoch: int = 0
    leader: str = ""
    leader_address: str = ""
    replicas: tuple[str, ...] = ()
    in_sync: tuple[str, ...] = ()
    incarnation: str = ""
    lsn: int = 0
    leader_admin_address: str = ""


def encode_record(record: ClusterConfig | NodeRecord | SliceRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(entry: Entry, form: type[Record]) -> Record:
    """Returns the record in an entry. Raises Malformed, which names the key."""
    try:
        return msgspec.json.decode(entry.value, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        key = entry.key.decode(errors="backslashreplace")
        raise Malformed(f"{key} is not a {form.__name__}: {error}", subject=key) from None
