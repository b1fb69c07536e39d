"""Encodes tables `key` and `key_name`.

    key        partition u16 | name       ->  form u8 | id, and by form:
        1                                 nothing was ever published: head = low = 1
        2   head u64                      nothing is kept: low = head
        3   head u64 | low u64 | body bytes u64
        4   head u64 | low u64 | body bytes u64 | history messages u64 | history age in seconds u32
            | capacity messages u64 | capacity bytes u64: a key that was configured
    key_name   id                         ->  partition u16 | name. The form is the table's (storage/lmdb_layout)

Body bytes count all bodies since the log was last empty. The row is under the name and not under the id, so that a
bind reads one row (DESIGN.md, tables).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import FIRST_OFFSET
from shoal_contract.options import PLAIN, KeyOptions
from shoal_slice_node.core.limits import OPTIONS_KEPT_MAX
from shoal_slice_node.core.rows.forms import unknown_form

ID: Final = slice(1, 9)
"""The place of the id in a key's row."""

NAME: Final = slice(2, None)
"""The place of the key's own name in a full name, after its partition."""

NEW: Final = 1
EMPTY: Final = 2
FULL: Final = 3
CONFIGURED: Final = 4
_NEW = Struct(">B8s")
_EMPTY = Struct(">B8sQ")
_FULL = Struct(">B8sQQQ")
_FULL_VALUES = Struct(">x8sQQQ")
_CONFIGURED = Struct(">B8sQQQ28s")
_OPTIONS = Struct(">QIQQ")
_HEAD = slice(9, 17)
_LOW = slice(17, 25)
_HAS_HEAD = (FULL, EMPTY, CONFIGURED)


class KeyRow(NamedTuple):
    """Holds a key's row. `head`: the next offset. `low`: the lowest kept offset, low <= head. Invariant: where nothing
    is kept, `body_bytes` is 0."""

    id: bytes
    head: int
    low: int
    body_bytes: int
    options: KeyOptions = PLAIN


def decode_key(row: bytes) -> KeyRow:
    if row[0] == FULL:
        return KeyRow(*_FULL_VALUES.unpack(row))
    if row[0] == CONFIGURED:
        _, key_id, head, low, body_bytes, options = _CONFIGURED.unpack(row)
        return KeyRow(key_id, head, low, body_bytes, _decode_options(options))
    head = head_of(row)
    return KeyRow(row[ID], head, head, 0)


def is_kept(row: bytes) -> bool:
    """Returns whether the key keeps messages."""
    return row[0] == FULL or (row[0] == CONFIGURED and row[_HEAD] != row[_LOW])


def is_configured(row: bytes) -> bool:
    """Returns whether the key has options of its own."""
    return row[0] == CONFIGURED


def head_of(row: bytes) -> int:
    """Returns only the head: what a bind needs."""
    form = row[0]
    if form == NEW:
        return FIRST_OFFSET
    if form in _HAS_HEAD:
        return int.from_bytes(row[_HEAD], "big")
    raise unknown_form("key", row, "1 to 4")


def grown(row: bytes, messages: int, body_bytes: int) -> tuple[int, int, bytes]:
    """Returns (first offset, body bytes before, the row after) for an append: the hot path of publishes."""
    if row[0] == FULL:
        key_id, head, low, before = _FULL_VALUES.unpack(row)
    elif row[0] == CONFIGURED:
        key = decode_key(row)
        after = key._replace(head=key.head + messages, body_bytes=key.body_bytes + body_bytes)
        return key.head, key.body_bytes, encode_key(after)
    else:
        key_id, head, before = row[ID], head_of(row), 0
        low = head
    return head, before, _FULL.pack(FULL, key_id, head + messages, low, before + body_bytes)


def encode_key(key: KeyRow) -> bytes:
    key_id, head, low, body_bytes, options = key
    assert low <= head, key
    if options != PLAIN:
        return _CONFIGURED.pack(
            CONFIGURED, key_id, head, low, body_bytes if low < head else 0, _encode_options(options)
        )
    if low < head:
        return _FULL.pack(FULL, key_id, head, low, body_bytes)
    return _NEW.pack(NEW, key.id) if key.head == FIRST_OFFSET else _EMPTY.pack(EMPTY, key.id, key.head)


@lru_cache(OPTIONS_KEPT_MAX)
def _encode_options(options: KeyOptions) -> bytes:
    return _OPTIONS.pack(
        options.history_messages, options.history_age_s, options.capacity_messages, options.capacity_bytes
    )


@lru_cache(OPTIONS_KEPT_MAX)
def _decode_options(data: bytes) -> KeyOptions:
    return KeyOptions(*_OPTIONS.unpack(data))
