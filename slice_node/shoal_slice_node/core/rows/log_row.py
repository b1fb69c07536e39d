"""Encodes table `log`: key id | first offset u64 -> what the broker must know of a chunk, then the chunk as it came.

0   form u8: 1
1   messages u32
5   body bytes of the chunk u32
9   time_ms u64, the leader's
17  body bytes of the key before this chunk u64: backlogs in bytes are subtractions
25  chunk

Form 2, where the chunk expires: 25 expires_ms u64, by the leader's clock | 33 chunk
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_slice_node.core.rows.forms import unknown_form

FORM: Final = 1
FORM_EXPIRES: Final = 2
_HEADER = Struct(">BIIQQ")
_HEADER_EXPIRES = Struct(">BIIQQQ")


class LogRow(NamedTuple):
    messages: int
    body_bytes: int
    time_ms: int
    body_bytes_before: int
    expires_ms: int = 0
    """0: never."""


def encode_log(
    messages: int, body_bytes: int, time_ms: int, body_bytes_before: int, chunk: bytes, expires_ms: int = 0
) -> bytes:
    if expires_ms:
        head = _HEADER_EXPIRES.pack(FORM_EXPIRES, messages, body_bytes, time_ms, body_bytes_before, expires_ms)
        return head + chunk
    return _HEADER.pack(FORM, messages, body_bytes, time_ms, body_bytes_before) + chunk


def decode_log(row: bytes) -> LogRow:
    _, *values = _layout(row).unpack_from(row)
    return LogRow(*values)


def chunk_of(row: bytes) -> bytes:
    return row[_layout(row).size :]


def _layout(row: bytes) -> Struct:
    """Returns the layout of a row's header. Raises ValueError for a form that this version does not know."""
    layout = _HEADER_EXPIRES if row[:1] == b"\x02" else _HEADER
    if len(row) < layout.size:
        raise ValueError(f"a row of table log has {len(row)} bytes; form 1 has at least {_HEADER.size}")
    if row[0] not in (FORM, FORM_EXPIRES):
        raise unknown_form("log", row, "1 and 2")
    return layout
