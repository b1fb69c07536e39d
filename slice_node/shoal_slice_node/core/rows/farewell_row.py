"""Encodes table `farewell`, and the row of `meta` that counts it.

farewell    "q" | queue id             ->  form u8: 1 | after_s u32 | LSN u64 of the record that set it | message:
                                           what is published once nothing has consumed the queue for so long
            "l" | LSN u64 | number u32 ->  form u8: 2 | producer 16 | message: a letter. Its farewell was said by that
                                           record, as the number-th, and its key is another slice's
            message                        length u16 | key | chunk
meta        "farewells"                ->  rows u64 | bytes u64 of their keys and chunks, of table `farewell`
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_contract.limits import PRODUCER_BYTES
from shoal_slice_node.core.rows.forms import check_form

FAREWELLS: Final = b"farewells"
QUEUE: Final = b"q"
LETTER: Final = b"l"
FORM: Final = 1
FORM_LETTER: Final = 2

_FAREWELL = Struct(">BIQH")
_LETTER = Struct(f">B{PRODUCER_BYTES}sH")
_LETTER_KEY = Struct(">sQI")
_COUNTS = Struct(">QQ")


class FarewellRow(NamedTuple):
    """Describes the farewell of a queue. `set_lsn`: of the record that set it."""

    after_s: int
    set_lsn: int
    key: bytes
    chunk: bytes


class LetterRow(NamedTuple):
    """Describes a farewell on its way to another slice. `producer`: publishes it there."""

    producer: bytes
    key: bytes
    chunk: bytes


class FarewellCounts(NamedTuple):
    """Counts the rows of table `farewell`, and the bytes of their keys and chunks."""

    rows: int
    message_bytes: int


NO_FAREWELLS: Final = FarewellCounts(0, 0)


def queue_key(queue_id: bytes) -> bytes:
    """Returns the key of the row with a queue's farewell."""
    return QUEUE + queue_id


def queue_of(row_key: bytes) -> bytes:
    """Returns the queue id, of the key of a row with a queue's farewell."""
    return row_key[1:]


def letter_key(lsn: int, number: int) -> bytes:
    """Returns the key of a letter's row. Letters lie in the order in which they were made."""
    return _LETTER_KEY.pack(LETTER, lsn, number)


def decode_letter_key(row_key: bytes) -> tuple[int, int]:
    """Returns the LSN and the number. Raises ValueError for a key of another length."""
    if len(row_key) != _LETTER_KEY.size:
        raise ValueError(f"the key of a letter has {len(row_key)} bytes, not {_LETTER_KEY.size}")
    _, lsn, number = _LETTER_KEY.unpack(row_key)
    return lsn, number


def encode_farewell(row: FarewellRow) -> bytes:
    return _FAREWELL.pack(FORM, row.after_s, row.set_lsn, len(row.key)) + row.key + row.chunk


def decode_farewell(row: bytes) -> FarewellRow:
    check_form("farewell", row, FORM, _FAREWELL.size)
    _, after_s, set_lsn, length = _FAREWELL.unpack_from(row)
    return FarewellRow(after_s, set_lsn, *_message(row[_FAREWELL.size :], length))


def after_s_of(row: bytes) -> int:
    """Returns the time of a queue's farewell alone."""
    after_s: int
    _, after_s, *_ = _FAREWELL.unpack_from(row)
    return after_s


def key_of(row: bytes) -> bytes:
    """Returns the key of a queue's farewell alone."""
    *_, length = _FAREWELL.unpack_from(row)
    return row[_FAREWELL.size : _FAREWELL.size + length]


def encode_letter(row: LetterRow) -> bytes:
    return _LETTER.pack(FORM_LETTER, row.producer, len(row.key)) + row.key + row.chunk


def decode_letter(row: bytes) -> LetterRow:
    check_form("farewell", row, FORM_LETTER, _LETTER.size)
    _, producer, length = _LETTER.unpack_from(row)
    return LetterRow(producer, *_message(row[_LETTER.size :], length))


def _message(data: bytes, length: int) -> tuple[bytes, bytes]:
    """Returns key and chunk."""
    if length > len(data):
        raise ValueError(f"a row of table farewell ends within its key, after {len(data)} of {length} bytes")
    return data[:length], data[length:]


def encode_counts(counts: FarewellCounts) -> bytes:
    return _COUNTS.pack(*counts)


def decode_counts(row: bytes | None) -> FarewellCounts:
    return NO_FAREWELLS if row is None else FarewellCounts._make(_COUNTS.unpack(row))
