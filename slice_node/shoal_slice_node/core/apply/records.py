"""Encodes and decodes what journal records hold: their kinds and payloads. shoal_contract.journal_record frames them.

CHANGE     producer 16 | sequence u64 | settled u64 | serialized Change, as the client sent it
ACKS       LSN when they were taken u64 | (queue id 8 | key id 8 | from u64 | to u64)*     from <= done < to, by queue
TRIM       (key id 8 | low u64 | lsn u64 when the search for low began)*
RECLAIM    (length u8 | what to reclaim, as core/rows/small_rows draws it)*
OWNERSHIP  map version u64 | partitions u32 | one byte a partition: 1 owned
RETRY      LSN when it was decided u64 | (queue id 8 | key id 8 | from u64 | to u64 | times u32 | fate u8 | reason u8)*
           messages that came back, delivered `times` times
EXPIRE     LSN when it was decided u64 | (queue id 8 | length u8 | name)*     transient queues that nothing consumes
DUE        (length u8 | key of a row of table `due` | length u8 | key's name)*     what is to happen now
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from shoal_contract.limits import PRODUCER_BYTES


class Kind(IntEnum):
    """Lists the kinds of records. 0 is the journal's own. Never renumber: the journal and the archive hold the
    numbers."""

    CHANGE = 1
    ACKS = 2
    TRIM = 3
    RECLAIM = 4
    OWNERSHIP = 5
    EXPIRE = 6
    RETRY = 7
    DUE = 8


class ChangeHead(NamedTuple):
    """Describes the head of a CHANGE record. If `producer` is all zeros, the change is unnumbered and never
    repeated."""

    producer: bytes
    sequence: int
    settled: int


class Acked(NamedTuple):
    queue_id: bytes
    key_id: bytes
    first: int
    to: int


class Trim(NamedTuple):
    key_id: bytes
    low: int
    looked_at_lsn: int


class Expired(NamedTuple):
    """Names a queue that expires. `name`: for readers of the archive, which know no ids."""

    queue_id: bytes
    name: bytes


class Fate(IntEnum):
    """Says what becomes of messages that came back. Never renumber."""

    AGAIN = 0
    """They are given again: their count is kept."""
    DEAD = 1
    """They are done for this queue; copies go to its dead-letter key, if it has one that this slice owns."""
    SENT = 2
    """They are done for this queue: their copies are on the slice that owns its dead-letter key."""


class Reason(IntEnum):
    """Says why messages came back. Never renumber: records hold the numbers."""

    NACK = 1
    TIMEOUT = 2
    """Not acked in time: the queue's ack timeout, or the lease of a pull, is over."""
    LEFT = 3
    """Their session ended, or detached the queue."""


class Retry(NamedTuple):
    queue_id: bytes
    key_id: bytes
    first: int
    to: int
    times: int
    fate: int
    reason: int


class Due(NamedTuple):
    """Names a row of table `due`. `name`: of the key that it is about, for readers of the archive."""

    row_key: bytes
    name: bytes


NO_PRODUCER = bytes(PRODUCER_BYTES)
_CHANGE = Struct(f">{PRODUCER_BYTES}sQQ")
_ACKED = Struct(">8s8sQQ")
_TAKEN = Struct(">Q")
_EXPIRED = Struct(">8sB")
_RETRY = Struct(">8s8sQQIBB")
_TRIM = Struct(">8sQQ")
_OWNERSHIP = Struct(">QI")


def encode_change(head: ChangeHead, change: bytes) -> bytes:
    return _CHANGE.pack(*head) + change


def decode_change(payload: bytes) -> tuple[ChangeHead, bytes]:
    return decode_change_head(payload), payload[_CHANGE.size :]


def decode_change_head(payload: bytes) -> ChangeHead:
    """Returns the head alone, without a copy of the change."""
    return ChangeHead._make(_CHANGE.unpack_from(payload))


def encode_acks(acks: Iterable[Acked], taken_at_lsn: int) -> bytes:
    """Encodes acks. `taken_at_lsn`: every record up to it was applied when the acks were taken."""
    return b"".join([_TAKEN.pack(taken_at_lsn), *(_ACKED.pack(*ack) for ack in acks)])


def decode_acks(payload: bytes) -> tuple[int, list[Acked]]:
    """Returns the LSN at which the acks were taken, and the acks."""
    (taken_at_lsn,) = _TAKEN.unpack_from(payload)
    return taken_at_lsn, list(map(Acked._make, _ACKED.iter_unpack(memoryview(payload)[_TAKEN.size :])))


def encode_trims(trims: Iterable[Trim]) -> bytes:
    return b"".join(_TRIM.pack(*trim) for trim in trims)


def decode_trims(payload: bytes) -> Iterator[Trim]:
    return map(Trim._make, _TRIM.iter_unpack(payload))


def encode_reclaim(keys: Iterable[bytes]) -> bytes:
    return b"".join(bytes((len(key),)) + key for key in keys)


def decode_reclaim(payload: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(payload):
        end = position + 1 + payload[position]
        if end > len(payload):
            raise ValueError(f"its row key at byte {position} is cut")
        yield payload[position + 1 : end]
        position = end


def encode_ownership(map_version: int, owned: bytes) -> bytes:
    """Encodes which partitions a slice owns. `owned`: one byte for each partition of the cluster."""
    return _OWNERSHIP.pack(map_version, len(owned)) + owned


def decode_ownership(payload: bytes) -> tuple[int, bytes]:
    version, partitions = _OWNERSHIP.unpack_from(payload)
    owned = payload[_OWNERSHIP.size :]
    if len(owned) != partitions or not partitions:
        raise ValueError(f"it names {partitions} partitions and has {len(owned)}")
    return version, owned


def encode_retries(retries: Iterable[Retry], decided_lsn: int) -> bytes:
    """Encodes retries. `decided_lsn`: every record up to it was applied when the leader decided."""
    return b"".join([_TAKEN.pack(decided_lsn), *(_RETRY.pack(*retry) for retry in retries)])


def decode_retries(payload: bytes) -> tuple[int, list[Retry]]:
    """Returns the LSN when it was decided, and the retries."""
    (decided_lsn,) = _TAKEN.unpack_from(payload)
    return decided_lsn, list(map(Retry._make, _RETRY.iter_unpack(memoryview(payload)[_TAKEN.size :])))


def encode_expire(queues: Iterable[Expired], decided_lsn: int) -> bytes:
    """Encodes an expiry. `decided_lsn`: every record up to it was applied when the leader decided."""
    return b"".join([_TAKEN.pack(decided_lsn), *(_EXPIRED.pack(id, len(name)) + name for id, name in queues)])


def decode_expire(payload: bytes) -> tuple[int, list[Expired]]:
    """Returns the LSN when it was decided, and the queues. Raises ValueError for a payload that is cut off."""
    (decided_lsn,) = _TAKEN.unpack_from(payload)
    queues: list[Expired] = []
    position = _TAKEN.size
    while position < len(payload):
        queue_id, length = _EXPIRED.unpack_from(payload, position)
        position += _EXPIRED.size + length
        if position > len(payload):
            raise ValueError(f"an EXPIRE record of {len(payload)} bytes ends within a name")
        queues.append(Expired(queue_id, payload[position - length : position]))
    return decided_lsn, queues


def encode_due(rows: Iterable[Due]) -> bytes:
    return b"".join(bytes((len(field),)) + field for row in rows for field in row)


def decode_due(payload: bytes) -> list[Due]:
    """Returns what is due. Raises ValueError for a payload that is cut off."""
    fields: list[bytes] = []
    position = 0
    while position < len(payload):
        end = position + 1 + payload[position]
        fields.append(payload[position + 1 : end])
        position = end
    if position > len(payload) or len(fields) % 2:
        raise ValueError(f"a DUE record of {len(payload)} bytes is cut")
    return [Due(row_key, name) for row_key, name in zip(fields[::2], fields[1::2], strict=True)]
