"""Encodes table `history`: the keys that keep messages for a time, which must be looked at though nothing happens.

history   key id            ->  form u8: 1. It has a history by age
          0xFFFF | key id   ->  form u8: 1 | time_ms u64. Some of its messages expire: when its row in `due` is, that is
                                when its first message expires, or a little later; 0: there is none, as its first
                                message does not
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from shoal_slice_node.core.rows.forms import check_form

ROW: Final = b"\x01"
EXPIRING: Final = b"\xff\xff"
"""Begins the row key of a key with messages that expire: behind all key ids."""
_MARK = Struct(">BQ")


def mark_key(key_id: bytes) -> bytes:
    """Returns the row key that says of a key that some of its messages expire."""
    return EXPIRING + key_id


def encode_mark(due_ms: int) -> bytes:
    return _MARK.pack(1, due_ms)


def decode_mark(row: bytes) -> int:
    """Returns when the key's row in `due` is; 0: there is none."""
    check_form("history", row, 1, _MARK.size)
    due_ms: int = _MARK.unpack(row)[1]
    return due_ms
