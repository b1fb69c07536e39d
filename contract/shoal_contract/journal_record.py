"""Encodes and decodes the record of the journal, and of the outbox (planned): one framed, checksummed entry with its
length before it.

    offset  size  field
    0       1     STX 0x02: where to re-synchronise
    1       1     kind
    2       2     flags: bit 0 SET_ASIDE, an operator decided that what cannot be applied of it is left out; bit 1
                  LEFT_OUT, that all of it is; others 0
    4       4     payload length, bytes
    8       8     lsn
    16      4     epoch
    20      8     time_ms, the leader's, since 1970
    28      4     crc32c (Castagnoli, RFC 3720) of bytes 0-27 and the payload
    32      n     payload

All fields are little-endian. Pure: bytes in, records out. The owner of a file decides what a bad record means.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import google_crc32c

from shoal_contract.limits import PAYLOAD_BYTES_MAX

STX: Final = 0x02
SET_ASIDE: Final = 1
LEFT_OUT: Final = 2
HEADER: Final = Struct("<BBHIQIQI")
_UNSIGNED: Final = Struct("<BBHIQIQ")

assert HEADER.size == 32 and _UNSIGNED.size == 28


class Record(NamedTuple):
    kind: int
    flags: int
    lsn: int
    epoch: int
    time_ms: int
    payload: bytes


def encode_record(kind: int, lsn: int, epoch: int, time_ms: int, payload: bytes, flags: int = 0) -> bytes:
    """Returns one record's bytes. `payload` has at most PAYLOAD_BYTES_MAX bytes."""
    return encode_header(kind, lsn, epoch, time_ms, payload, flags) + payload


def encode_header(kind: int, lsn: int, epoch: int, time_ms: int, payload: bytes, flags: int = 0) -> bytes:
    """Returns the bytes that stand before the payload, for a caller that joins many records in one go."""
    assert len(payload) <= PAYLOAD_BYTES_MAX, f"record of {len(payload)} bytes; the limit is {PAYLOAD_BYTES_MAX}"
    head = _UNSIGNED.pack(STX, kind, flags, len(payload), lsn, epoch, time_ms)
    crc: int = google_crc32c.extend(google_crc32c.value(head), payload)
    return head + crc.to_bytes(4, "little")


def decode_record(data: bytes | memoryview, position: int) -> tuple[Record, int] | None:
    """Returns the record at `position` and where the next one begins; None if there is no whole, sound record."""
    if len(data) - position < HEADER.size:
        return None
    stx, kind, flags, length, lsn, epoch, time_ms, crc = HEADER.unpack_from(data, position)
    start = position + HEADER.size
    if stx != STX or length > PAYLOAD_BYTES_MAX or len(data) - start < length:
        return None
    payload = bytes(data[start : start + length])
    head = bytes(data[position : position + _UNSIGNED.size])
    if google_crc32c.extend(google_crc32c.value(head), payload) != crc:
        return None
    return Record(kind, flags, lsn, epoch, time_ms, payload), start + length
