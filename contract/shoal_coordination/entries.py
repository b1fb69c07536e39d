"""Defines etcd's nouns as typed values: entries, comparisons, operations, and their wire form.

Belongs here: values and their translation, no calls. Revisions are etcd's: the store's counter of changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal_coordination.wire import kv_pb2
from shoal_coordination.wire import rpc_pb2 as wire


@dataclass(frozen=True, slots=True)
class Entry:
    """Holds one key and its value, as stored. `version` counts its changes since it was created; `lease` 0 means
    none."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class Range:
    """Holds entries in key order, as of one revision of the whole store."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Get:
    """Reads one key, or with `range_end` every key in [key, range_end)."""

    key: bytes
    range_end: bytes = b""

    def to_wire(self) -> wire.RequestOp:
        return wire.RequestOp(request_range=wire.RangeRequest(key=self.key, range_end=self.range_end))


@dataclass(frozen=True, slots=True)
class Put:
    key: bytes
    value: bytes
    lease: int = 0

    def to_wire(self) -> wire.RequestOp:
        return wire.RequestOp(request_put=wire.PutRequest(key=self.key, value=self.value, lease=self.lease))


@dataclass(frozen=True, slots=True)
class Delete:
    key: bytes
    range_end: bytes = b""

    def to_wire(self) -> wire.RequestOp:
        delete = wire.DeleteRangeRequest(key=self.key, range_end=self.range_end)
        return wire.RequestOp(request_delete_range=delete)


Operation = Get | Put | Delete


@dataclass(frozen=True, slots=True)
class Transaction:
    """Holds the result of a transaction. `reads`: the entries of each Get, in order."""

    succeeded: bool
    revision: int
    reads: tuple[tuple[Entry, ...], ...]


def mod_revision_is(key: bytes, revision: int) -> wire.Compare:
    """Holds if `key` was last changed at `revision`; 0: it does not exist."""
    return wire.Compare(key=key, target=wire.Compare.MOD, result=wire.Compare.EQUAL, mod_revision=revision)


def absent(key: bytes, range_end: bytes = b"") -> wire.Compare:
    """Holds if `key` does not exist, or with `range_end` if no key in [key, range_end) does."""
    return wire.Compare(key=key, range_end=range_end, target=wire.Compare.VERSION, result=wire.Compare.EQUAL, version=0)


def prefix_end(prefix: bytes) -> bytes:
    """Returns the end of the range of all keys that begin with `prefix`, by etcd's own rule: the last byte below 255
    plus one."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


def entry_from_wire(kv: kv_pb2.KeyValue) -> Entry:
    return Entry(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def entries_from_wire(kvs: Iterable[kv_pb2.KeyValue]) -> tuple[Entry, ...]:
    return tuple(map(entry_from_wire, kvs))
