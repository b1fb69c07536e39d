"""Encodes tables `key` and `key_name`.

    key        partition u16 | name       ->  one of three forms, told apart by length:
        8   id                            nothing was ever published: head = low = 1
        16  id | head u64                 nothing is kept: low = head
        32  id | head u64 | low u64 | body bytes u64
    key_name   id                         ->  partition u16 | name

Body bytes count all bodies since the log was last empty. The row is under the name and not under the id, so that a
bind reads one row (DESIGN.md, trade-offs).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import FIRST_OFFSET

ID: Final = slice(0, 8)
"""The place of the id in a key's row, and in rows and row keys that begin with an id."""

NAME: Final = slice(2, None)
"""The place of the key's own name in a full name, after its partition."""

_HEAD = Struct(">8sQ")
_FULL = Struct(">8sQQQ")


class KeyRow(NamedTuple):
    """A key's row. `head`: the next offset. `low`: the lowest kept offset, low <= head."""

    id: bytes
    head: int
    low: int
    body_bytes: int


def decode_key(row: bytes) -> KeyRow:
    if len(row) == 32:
        return KeyRow._make(_FULL.unpack(row))
    head = head_of(row)
    return KeyRow(row[ID], head, head, 0)


def is_kept(row: bytes) -> bool:
    """Returns whether the key keeps messages."""
    return len(row) == _FULL.size


def head_of(row: bytes) -> int:
    """Returns only the head: what a bind needs."""
    return FIRST_OFFSET if len(row) == 8 else int.from_bytes(row[8:16], "big")


def grown(row: bytes, messages: int, body_bytes: int) -> tuple[int, int, bytes]:
    """Returns (first offset, body bytes before, the row after) for an append: the hot path of publishes."""
    if len(row) == 32:
        key_id, head, low, before = _FULL.unpack(row)
    else:
        key_id, head, before = row[ID], head_of(row), 0
        low = head
    return head, before, _FULL.pack(key_id, head + messages, low, before + body_bytes)


def encode_key(key: KeyRow) -> bytes:
    assert key.low <= key.head, key
    if key.low < key.head:
        return _FULL.pack(*key)
    return key.id if key.head == FIRST_OFFSET else _HEAD.pack(key.id, key.head)
