"""Encodes table `log`: key id | first offset u64 -> what the broker must know of a chunk, then the chunk as it came.

0   form u8: 1
1   messages u32
5   body bytes of the chunk u32
9   time_ms u64, the leader's
17  body bytes of the key before this chunk u64: backlogs in bytes are subtractions
25  chunk
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_slice_node.core.rows.forms import check_form

FORM: Final = 1
_HEADER = Struct(">BIIQQ")


class LogRow(NamedTuple):
    messages: int
    body_bytes: int
    time_ms: int
    body_bytes_before: int


def encode_log(messages: int, body_bytes: int, time_ms: int, body_bytes_before: int, chunk: bytes) -> bytes:
    return _HEADER.pack(FORM, messages, body_bytes, time_ms, body_bytes_before) + chunk


def decode_log(row: bytes) -> LogRow:
    check_form("log", row, FORM, _HEADER.size)
    _, *values = _HEADER.unpack_from(row)
    return LogRow._make(values)


def chunk_of(row: bytes) -> bytes:
    check_form("log", row, FORM, _HEADER.size)
    return row[_HEADER.size :]
