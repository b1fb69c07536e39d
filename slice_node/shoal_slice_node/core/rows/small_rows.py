"""Tables `partition`, `meta` and `reclaim`.

partition   u16                ->  next key number u64 | floor u64: the highest offset any vanished key had
meta        "next_queue"       ->  u64, number of the next queue
            "owned"            ->  map version u64 | one byte a partition: 1 owned
            "kept"             ->  messages u64 | body bytes u64, of all logs: as of the checkpoint
            "epoch"              ->  u64, of the newest record
            "bound_back"       ->  u64, LSN of the last bind of any key that began below its head
reclaim     "k" | key id       ->  0x01: the key may have nothing left
            "q" | queue id     ->  the row of a dropped queue whose bindings are not yet all gone
            "b" | key id       ->  u64, LSN of the last bind of this key that began below its head
            "p" | producer     ->  (never stored: names an idle producer in a RECLAIM record)
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

NEXT_QUEUE = b"next_queue"
OWNED = b"owned"
KEPT = b"kept"
EPOCH = b"epoch"
BOUND_BACK_LSN = b"bound_back"

RECLAIM_KEY = b"k"
RECLAIM_QUEUE = b"q"
BOUND_BACK = b"b"
RECLAIM_PRODUCER = b"p"
CANDIDATE = b"\x01"

_PARTITION = Struct(">QQ")
_KEPT = Struct(">QQ")


class PartitionRow(NamedTuple):
    next_number: int
    floor: int


NEW_PARTITION = PartitionRow(1, 0)


def encode_partition(row: PartitionRow) -> bytes:
    return _PARTITION.pack(*row)


def decode_partition(row: bytes | None) -> PartitionRow:
    return NEW_PARTITION if row is None else PartitionRow._make(_PARTITION.unpack(row))


def encode_owned(map_version: int, owned: bytes) -> bytes:
    return map_version.to_bytes(8, "big") + owned


def decode_owned(row: bytes) -> tuple[int, bytes]:
    return int.from_bytes(row[:8], "big"), row[8:]


def encode_kept(messages: int, body_bytes: int) -> bytes:
    return _KEPT.pack(messages, body_bytes)


def decode_kept(row: bytes) -> tuple[int, int]:
    messages, body_bytes = _KEPT.unpack(row)
    return messages, body_bytes
