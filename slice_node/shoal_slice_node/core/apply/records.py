"""Encodes and decodes what journal records hold: their kinds and payloads. shoal_contract.journal_record frames them.

CHANGE     producer 16 | sequence u64 | settled u64 | serialized Change, as the client sent it, but for what the leader
           decides: drops that it leaves out, and LimitedBinds in the place of Binds
ACKS       LSN when they were taken u64 | (queue id 8 | key id 8 | from u64 | to u64)*     from <= done < to, by queue
TRIM       (key id 8 | low u64 | lsn u64 when the search for low began)*
RECLAIM    (length u8 | what to reclaim, as core/rows/small_rows draws it)*
OWNERSHIP  map version u64 | partitions u32 | one byte a partition: 1 owned
RETRY      LSN when it was decided u64 | (queue id 8 | key id 8 | from u64 | to u64 | times u32 | fate u8 | reason u8)*
           messages that came back, delivered `times` times
EXPIRE     LSN when it was decided u64 | (queue id 8 | length u8 | name)*     transient queues that nothing consumes
DUE        form u8: 1 | wall_ms u64 | (length u8 | name's length u16 | key of a row of table `due` | key's name)*
            what is to happen now, wall_ms being what the leader's clock showed. Without form and time
            the record's own time counts; then the first byte is never 1
FAREWELL   LSN when it was decided u64 | (length u8 | key of a row of table `farewell` | length u8 | queue's name
           | length u16 | key's name)*     farewells to be said; letters that are where they belong, without a queue
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
    FAREWELL = 9


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


class Farewell(NamedTuple):
    """Names a row of table `farewell`. `queue`, `key`: their names, for readers of the archive. A letter has no
    queue."""

    row_key: bytes
    queue: bytes
    key: bytes


NO_PRODUCER = bytes(PRODUCER_BYTES)
_CHANGE = Struct(f">{PRODUCER_BYTES}sQQ")
_ACKED = Struct(">8s8sQQ")
_TAKEN = Struct(">Q")
_EXPIRED = Struct(">8sB")
_DUE = Struct(">BH")
_RETRY = Struct(">8s8sQQIBB")
_TRIM = Struct(">8sQQ")
_OWNERSHIP = Struct(">QI")
_DUE_HEAD = Struct(">BQ")
_DUE_FORM = 1
_DUE_FORM_BYTE = b"\x01"


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


def encode_due(rows: Iterable[Due], wall_ms: int = 0) -> bytes:
    """Encodes what is due. A direct key may be longer than a byte can say. `wall_ms`: the time that the leader's clock
    showed; 0: the record's own time counts."""
    head = _DUE_HEAD.pack(_DUE_FORM, wall_ms) if wall_ms else b""
    return head + b"".join(_DUE.pack(len(row_key), len(name)) + row_key + name for row_key, name in rows)


def due_wall_ms(payload: bytes) -> int:
    """Returns what the leader's clock showed; 0: the record does not say it. Raises ValueError for a payload that is
    cut off."""
    if payload[:1] != _DUE_FORM_BYTE:
        return 0
    if len(payload) < _DUE_HEAD.size:
        raise ValueError(f"a DUE record of {len(payload)} bytes is cut")
    return int(_DUE_HEAD.unpack_from(payload)[1])


def decode_due(payload: bytes) -> list[Due]:
    """Returns what is due. Raises ValueError for a payload that is cut off."""
    rows: list[Due] = []
    position = _DUE_HEAD.size if payload[:1] == _DUE_FORM_BYTE else 0
    while position + _DUE.size <= len(payload):
        row_bytes, name_bytes = _DUE.unpack_from(payload, position)
        name = position + _DUE.size + row_bytes
        position = name + name_bytes
        rows.append(Due(payload[name - row_bytes : name], payload[name:position]))
    if position != len(payload):
        raise ValueError(f"a DUE record of {len(payload)} bytes is cut")
    return rows


def encode_farewells(farewells: Iterable[Farewell], decided_lsn: int) -> bytes:
    """Encodes what is to be said. `decided_lsn`: every record up to it was applied when the leader decided."""
    parts = [_TAKEN.pack(decided_lsn)]
    for row_key, queue, key in farewells:
        parts += (bytes((len(row_key),)), row_key, bytes((len(queue),)), queue, len(key).to_bytes(2, "big"), key)
    return b"".join(parts)


def decode_farewells(payload: bytes) -> tuple[int, list[Farewell]]:
    """Returns the LSN when it was decided, and the rows. Raises ValueError for a payload that is cut off."""
    (decided_lsn,) = _TAKEN.unpack_from(payload)
    farewells: list[Farewell] = []
    position = _TAKEN.size
    while position < len(payload):
        fields: list[bytes] = []
        for size in (1, 1, 2):  # A direct key may be one byte longer than other names.
            begin = position + size
            position = begin + int.from_bytes(payload[position:begin], "big")
            fields.append(payload[begin:position])
            if position > len(payload):
                raise ValueError(f"a FAREWELL record of {len(payload)} bytes is cut")
        farewells.append(Farewell(*fields))
    return decided_lsn, farewells
