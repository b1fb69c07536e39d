"""Table `log`: key id | first offset u64 -> one chunk, as it came, behind what the broker needs to know of it.

0   messages u32
4   body bytes of the chunk u32
8   time_ms u64, the leader's
16  body bytes of the key before this chunk u64: backlogs in bytes are subtractions
24  chunk
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_HEADER = Struct(">IIQQ")


class LogRow(NamedTuple):
    messages: int
    body_bytes: int
    time_ms: int
    body_bytes_before: int


def encode_log(messages: int, body_bytes: int, time_ms: int, body_bytes_before: int, chunk: bytes) -> bytes:
    return _HEADER.pack(messages, body_bytes, time_ms, body_bytes_before) + chunk


def decode_log(row: bytes) -> LogRow:
    return LogRow._make(_HEADER.unpack_from(row))


def chunk_of(row: bytes) -> bytes:
    return row[_HEADER.size :]
