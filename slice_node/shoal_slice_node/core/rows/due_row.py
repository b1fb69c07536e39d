"""Encodes table `due`, what happens at an absolute time, and the rows of `meta` that count it.

due     time_ms u64 | letter | subject     ->  what is to be done; rows lie in the order of their times
        time_ms u64 | "p" | number u64     ->  form u8: 1 | messages u32 | body bytes u32 | chunk bytes u32 | full name
                                               of the key: a delayed publish. The number is in order of acceptance.
                                               After the letter "p" come "q" to "v": it was refused once, or up to 6
                                               times or more
                                           ->  form u8: 2 | as in form 1, with ttl_ms u64 before the full name
        time_ms u64 | "x" | key id         ->  form u8: 1: the first message of the key expires
meta    "delayed"                          ->  next number u64 | chunks u64 | their bytes u64, of delayed publishes
        "delayed " | full name of a key    ->  chunks u64 | their bytes u64, of its delayed publishes; none: no row
log     delayed id (8) | 1                 ->  the chunk of a delayed publish, as a row of a log of its own

A delayed id is a key id of a partition that no cluster has. So a chunk of any size lies in parts of a page, as all
chunks do, and goes with one trim. Bytes of chunks are those of whole chunks, with headers: that is what is kept.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import FIRST_OFFSET, PARTITIONS_MAX
from shoal_slice_node.core.rows.forms import check_form
from shoal_slice_node.core.rows.ids import key_id, partition_of_id

DELAYED: Final = b"delayed"
PUBLISH: Final = b"p"
REFUSED_MOST: Final = b"v"
MESSAGE_EXPIRES: Final = b"x"
MESSAGE_EXPIRES_ROW: Final = b"\x01"
FORM: Final = 1
FORM_TTL: Final = 2
FIRST: Final = FIRST_OFFSET
"""The offset of a delayed chunk in its own log."""

_DELAYED_PARTITION: Final = 0xFFFF
_DUE_KEY = Struct(">QsQ")
_TIME = Struct(">Q")
_PUBLISH = Struct(">BIII")
_PUBLISH_TTL = Struct(">BIIIQ")
_LETTER = slice(8, 9)
_SUBJECT = slice(9, 17)
_COUNTS = Struct(">QQQ")
_OF_KEY = Struct(">QQ")
DELAYED_OF_KEY: Final = DELAYED + b" "

assert PARTITIONS_MAX < _DELAYED_PARTITION


class DueKey(NamedTuple):
    """Holds the key of a row: when it is due, what it is, its number."""

    time_ms: int
    letter: bytes
    number: int

    @property
    def refused(self) -> int | None:
        """Returns how often a delayed publish was refused, as far as that is counted; None: the row is none."""
        return self.letter[0] - PUBLISH[0] if PUBLISH <= self.letter <= REFUSED_MOST else None


class DelayedRow(NamedTuple):
    """Describes a delayed publish. `chunk_bytes`: of the chunk as it came. `full_name`: partition and name of its
    key."""

    messages: int
    body_bytes: int
    chunk_bytes: int
    full_name: bytes
    ttl_ms: int = 0


class DelayedCounts(NamedTuple):
    """Counts the delayed publishes of a slice. `next_number`: of the next one."""

    next_number: int
    chunks: int
    chunk_bytes: int


class DelayedOfKey(NamedTuple):
    """Counts the delayed publishes of a key."""

    chunks: int
    chunk_bytes: int


NO_DELAYED: Final = DelayedCounts(1, 0, 0)


def delayed_key(time_ms: int, number: int, refused: int = 0) -> bytes:
    """Returns the key of a delayed publish's row. `refused`: how often it was."""
    return _DUE_KEY.pack(time_ms, min(bytes((PUBLISH[0] + refused,)), REFUSED_MOST), number)


def decode_due_key(row_key: bytes) -> DueKey:
    """Reads the key of a row. Raises ValueError for one of another length."""
    if len(row_key) != _DUE_KEY.size:
        raise ValueError(f"a row key of table due has {len(row_key)} bytes, not {_DUE_KEY.size}")
    return DueKey._make(_DUE_KEY.unpack(row_key))


def due_time(row_key: bytes) -> int:
    """Returns when a row is due, from its key."""
    time_ms: int
    (time_ms,) = _TIME.unpack_from(row_key)
    return time_ms


def expiry_key(time_ms: int, key_id: bytes) -> bytes:
    """Returns the key of the row that says when a key's first message expires."""
    return _DUE_KEY.pack(time_ms, MESSAGE_EXPIRES, int.from_bytes(key_id, "big"))


def expiring_key(row_key: bytes) -> bytes | None:
    """Returns the id of the key whose first message expires; None: the row is about something else."""
    return row_key[_SUBJECT] if row_key[_LETTER] == MESSAGE_EXPIRES else None


def encode_delayed(row: DelayedRow) -> bytes:
    if row.ttl_ms:
        return _PUBLISH_TTL.pack(FORM_TTL, row.messages, row.body_bytes, row.chunk_bytes, row.ttl_ms) + row.full_name
    return _PUBLISH.pack(FORM, row.messages, row.body_bytes, row.chunk_bytes) + row.full_name


def decode_delayed(row: bytes) -> DelayedRow:
    if row[:1] == b"\x02":
        check_form("due", row, FORM_TTL, _PUBLISH_TTL.size)
        _, messages, body_bytes, chunk_bytes, ttl_ms = _PUBLISH_TTL.unpack_from(row)
        return DelayedRow(messages, body_bytes, chunk_bytes, row[_PUBLISH_TTL.size :], ttl_ms)
    check_form("due", row, FORM, _PUBLISH.size)
    _, messages, body_bytes, chunk_bytes = _PUBLISH.unpack_from(row)
    return DelayedRow(messages, body_bytes, chunk_bytes, row[_PUBLISH.size :])


def delayed_id(number: int) -> bytes:
    """Returns the id of the log that holds the chunk of a delayed publish."""
    return key_id(_DELAYED_PARTITION, number)


def is_delayed_id(some_id: bytes) -> bool:
    """Returns whether an id of table `log` is that of a delayed publish."""
    return partition_of_id(some_id) == _DELAYED_PARTITION


def encode_counts(counts: DelayedCounts) -> bytes:
    return _COUNTS.pack(*counts)


def decode_counts(row: bytes | None) -> DelayedCounts:
    return NO_DELAYED if row is None else DelayedCounts._make(_COUNTS.unpack(row))


def delayed_of_key(full_name: bytes) -> bytes:
    """Returns the key of the row of `meta` that counts a key's delayed publishes."""
    return DELAYED_OF_KEY + full_name


def encode_of_key(counts: DelayedOfKey) -> bytes:
    return _OF_KEY.pack(*counts)


def decode_of_key(row: bytes | None) -> DelayedOfKey:
    return DelayedOfKey(0, 0) if row is None else DelayedOfKey._make(_OF_KEY.unpack(row))
