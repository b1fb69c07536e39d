"""Encodes tables `key` and `key_name`.

    key        partition u16 | name       ->  form u8 | id, and by form:
        1                                 nothing was ever published: head = low = 1
        2   head u64                      nothing is kept: low = head
        3   head u64 | low u64 | body bytes u64
        4   head u64 | low u64 | body bytes u64 | history messages u64 | history age in seconds u32
            | capacity messages u64 | capacity bytes u64: a key that was configured, with policy reject
        5   as 4 | policy u8: with another policy (its number on the wire)
    key_name   id                         ->  partition u16 | name. The form is the table's (storage/lmdb_layout)

Body bytes count all bodies since the log was last empty. The row is under the name and not under the id, so that a
bind reads one row (DESIGN.md, tables).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.arguments import POLICY
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
"""The first of the forms with options."""
WITH_POLICY: Final = 5
_NEW = Struct(">B8s")
_EMPTY = Struct(">B8sQ")
_FULL = Struct(">B8sQQQ")
_FULL_VALUES = Struct(">x8sQQQ")
_CONFIGURED = Struct(">B8sQQQ28s")
_OPTIONS = Struct(">QIQQ")
_POLICY_AT = 61
_HEAD = slice(9, 17)
_LOW = slice(17, 25)
_HAS_HEAD = (FULL, EMPTY, CONFIGURED, WITH_POLICY)


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
    if is_configured(row):
        _, key_id, head, low, body_bytes, options = _CONFIGURED.unpack(row[:_POLICY_AT])
        return KeyRow(key_id, head, low, body_bytes, _decode_options(options + row[_POLICY_AT:]))
    head = head_of(row)
    return KeyRow(row[ID], head, head, 0)


def is_kept(row: bytes) -> bool:
    """Returns whether the key keeps messages."""
    return row[0] == FULL or (is_configured(row) and row[_HEAD] != row[_LOW])


def is_configured(row: bytes) -> bool:
    """Returns whether the key has options of its own."""
    return row[0] in (CONFIGURED, WITH_POLICY)


def low_of(row: bytes) -> int:
    """Returns only the low: with it, a binding's cursor says what it still has to get."""
    return int.from_bytes(row[_LOW], "big") if len(row) > _LOW.start else head_of(row)


def head_of(row: bytes) -> int:
    """Returns only the head: what a bind needs."""
    form = row[0]
    if form == NEW:
        return FIRST_OFFSET
    if form in _HAS_HEAD:
        return int.from_bytes(row[_HEAD], "big")
    raise unknown_form("key", row, "1 to 5")


def grown(row: bytes, messages: int, body_bytes: int) -> tuple[int, int, bytes]:
    """Returns (first offset, body bytes before, the row after) for an append: the hot path of publishes."""
    if row[0] == FULL:
        key_id, head, low, before = _FULL_VALUES.unpack(row)
    elif is_configured(row):
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
        data = _encode_options(options)
        form = CONFIGURED if len(data) == _OPTIONS.size else WITH_POLICY
        row = _CONFIGURED.pack(form, key_id, head, low, body_bytes if low < head else 0, data[: _OPTIONS.size])
        return row + data[_OPTIONS.size :]
    if low < head:
        return _FULL.pack(FULL, key_id, head, low, body_bytes)
    return _NEW.pack(NEW, key.id) if key.head == FIRST_OFFSET else _EMPTY.pack(EMPTY, key.id, key.head)


@lru_cache(OPTIONS_KEPT_MAX)
def _encode_options(options: KeyOptions) -> bytes:
    data = _OPTIONS.pack(
        options.history_messages, options.history_age_s, options.capacity_messages, options.capacity_bytes
    )
    policy = POLICY.words.index(options.policy)
    return data + bytes((policy,)) if policy else data


@lru_cache(OPTIONS_KEPT_MAX)
def _decode_options(data: bytes) -> KeyOptions:
    """Returns the options. Raises ValueError for a policy that this version does not know."""
    history_messages, history_age_s, messages, body_bytes = _OPTIONS.unpack(data[: _OPTIONS.size])
    policy = data[_OPTIONS.size :]
    if len(policy) > 1 or (policy and not 0 < policy[0] < len(POLICY.words)):
        raise ValueError(f"a row of table key has policy {policy.hex()}; this version reads 01")
    word = POLICY.words[policy[0] if policy else 0]
    return KeyOptions(history_messages, history_age_s, messages, body_bytes, word)
