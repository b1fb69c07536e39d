"""The cluster's records as stored: JSON values of etcd keys (keys.py). The partition map has its own form (contract).

Fields that a newer version adds are ignored by an older one.
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
    """Written once. `partitions` is P for ever; `created_ms` is Unix time.

    `id`: 32 hex digits at random. Two clusters never share one, whatever their names; slices' data carries it.
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
    """A node that is there: it hangs on the node's lease. `address` is host:port.

    `admin_address`: host:port of its administration and bulk transfer; empty: where `address` is.
    """

    node: str
    address: str
    slice: str
    admin_address: str = ""


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """`epoch` grows with each new leader; 0: never had one. `leader` is a node, `leader_address` host:port.

    `in_sync` is a part of `replicas`: the nodes that hold all that was acknowledged. Only they may lead.
    `incarnation`: 32 hex digits, the life of the slice's data; empty: it never had any. `lsn`: how far that data was
    known to go when it was last claimed, or its leader stopped cleanly: what goes less far is an old copy.
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
    """Raises Malformed, which names the key."""
    try:
        return msgspec.json.decode(entry.value, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        key = entry.key.decode(errors="backslashreplace")
        raise Malformed(f"{key} is not a {form.__name__}: {error}", subject=key) from None
