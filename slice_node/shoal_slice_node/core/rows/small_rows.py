"""Encodes tables `partition`, `meta`, `reclaim`, `local_totals` and `local_hints`.

partition   u16                ->  form u8: 1 | next key number u64 | floor u64: the highest offset any vanished key had
meta        by name, which is the form: another layout has another name
            "next_queue"       ->  u64, number of the next queue
            "owned"            ->  map version u64 | one byte a partition: 1 owned
            "epoch"            ->  u64, of the newest record
            "acks_cut"         ->  u64, LSN of the newest row "a" of `reclaim` that was forgotten
            "left_out"         ->  u64, LSN of the first record of which something was left out (`shoal repair --skip`)
reclaim     by letter, which is the form
            "q" | queue id     ->  the row of a dropped queue whose bindings are not yet all gone
            "a" | LSN u64 | number u32  ->  queue id | key id | start u64: a bind that began below its key's head, the
                                   number-th of its record
            "b" | key id       ->  LSN u64 | lowest u64, twice: for older binds, then for newer ones (0 0: none): the
                                   last bind of this key that needs messages below its head, and the lowest offset
                                   that such binds need
            "k" | key id, "p" | producer | time_ms u64, "e" | queue id | key id  ->  (never stored: in a RECLAIM
                                   record, a key that may have nothing left, a producer that is idle since then, an
                                   ended binding of whose backlog the key may keep nothing)
local_totals   "kept"          ->  form u8: 1 | messages u64 | body bytes u64, of all logs: as of the checkpoint
               "time"          ->  time_ms u64 of the newest record: as of the checkpoint
               "in_part"       ->  form u8: 1 | LSN u64 | epoch u64 | rows u32: of this DUE record the tables hold what
                                   its first rows do, and nothing of the others; the checkpoint is of the LSN before
local_hints    key id          ->  form u8: 1. The key may have nothing left; whether it has is looked up
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.rows.forms import check_form

NEXT_QUEUE = b"next_queue"
OWNED = b"owned"
KEPT = b"kept"
TIME = b"time"
IN_PART = b"in_part"
EPOCH = b"epoch"
ACKS_CUT_FORGOTTEN = b"acks_cut"
LEFT_OUT_AT = b"left_out"

RECLAIM_KEY = b"k"
RECLAIM_QUEUE = b"q"
ACKS_CUT = b"a"
TRIMS_HELD = b"b"
RECLAIM_PRODUCER = b"p"
RECLAIM_ENDED = b"e"
HINT = b"\x01"

PARTITION_FORM: Final = 1
KEPT_FORM: Final = 1
IN_PART_FORM: Final = 1
_PARTITION = Struct(">BQQ")
_KEPT = Struct(">BQQ")
_IN_PART = Struct(">BQQI")
_ACKS_CUT_KEY = Struct(">sQI")
_ACKS_CUT = Struct(">16sQ")
_TRIMS_HELD = Struct(">QQQQ")


class PartitionRow(NamedTuple):
    next_number: int
    floor: int


class InPart(NamedTuple):
    """Says how many rows of a DUE record are done: the tables were saved before the others were."""

    lsn: int
    epoch: int
    rows: int


class AcksCut(NamedTuple):
    """Notes a bind below the key's head. `binding`: queue id, key id. Its acks taken before `lsn` count only below
    `start`."""

    lsn: int
    number: int
    binding: bytes
    start: int


class Promise(NamedTuple):
    """Says that binds up to `lsn` need messages from `lowest` on. `lsn` 0: there are no such binds."""

    lsn: int
    lowest: int


NO_PROMISE = Promise(0, 0)
NEW_PARTITION = PartitionRow(1, 0)


def encode_partition(row: PartitionRow) -> bytes:
    return _PARTITION.pack(PARTITION_FORM, *row)


def decode_partition(row: bytes | None) -> PartitionRow:
    if row is None:
        return NEW_PARTITION
    check_form("partition", row, PARTITION_FORM, _PARTITION.size)
    _, next_number, floor = _PARTITION.unpack(row)
    return PartitionRow(next_number, floor)


def encode_owned(map_version: int, owned: bytes) -> bytes:
    return map_version.to_bytes(8, "big") + owned


def decode_owned(row: bytes) -> tuple[int, bytes]:
    return int.from_bytes(row[:8], "big"), row[8:]


def encode_kept(messages: int, body_bytes: int) -> bytes:
    return _KEPT.pack(KEPT_FORM, messages, body_bytes)


def decode_kept(row: bytes) -> tuple[int, int]:
    check_form("local_totals", row, KEPT_FORM, _KEPT.size)
    _, messages, body_bytes = _KEPT.unpack(row)
    return messages, body_bytes


def encode_in_part(row: InPart) -> bytes:
    return _IN_PART.pack(IN_PART_FORM, *row)


def decode_in_part(row: bytes) -> InPart:
    check_form("local_totals", row, IN_PART_FORM, _IN_PART.size)
    return InPart(*_IN_PART.unpack(row)[1:])


def idle_producer(producer: bytes, time_ms: int) -> bytes:
    """Returns the row key that names an idle producer. `time_ms`: the time of the last record heard from it."""
    return RECLAIM_PRODUCER + producer + time_ms.to_bytes(8, "big")


def decode_idle_producer(row_key: bytes) -> tuple[bytes, int]:
    """Returns the producer, and when it was last heard."""
    return row_key[1 : 1 + PRODUCER_BYTES], int.from_bytes(row_key[1 + PRODUCER_BYTES :], "big")


def acks_cut_key(cut: AcksCut) -> bytes:
    return _ACKS_CUT_KEY.pack(ACKS_CUT, cut.lsn, cut.number)


def encode_acks_cut(cut: AcksCut) -> bytes:
    return _ACKS_CUT.pack(cut.binding, cut.start)


def decode_acks_cut(row_key: bytes, row: bytes) -> AcksCut:
    _, lsn, number = _ACKS_CUT_KEY.unpack(row_key)
    return AcksCut(lsn, number, *_ACKS_CUT.unpack(row))


def encode_trims_held(older: Promise, newer: Promise) -> bytes:
    return _TRIMS_HELD.pack(*older, *newer)


def decode_trims_held(row: bytes) -> tuple[Promise, Promise]:
    """Returns the older and the newer promise."""
    numbers = _TRIMS_HELD.unpack(row)
    return Promise(*numbers[:2]), Promise(*numbers[2:])
