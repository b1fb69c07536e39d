"""Makes from a proper protobuf message one that no client of ours would send. All choices follow from `random`.

Most mutations keep the message readable: fields are repeated, left out, moved or given odd values, at any depth, so
that the code behind the parser is tested too. The others change bytes.

Belongs here: the wire format. Not here: what the messages mean (proper.py), where they go (frames.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from shoal_contract.limits import REQUEST_BYTES_MAX

Bytes = Callable[[bytes, Random], bytes]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_RAW = -1
"""Marks bytes that stand in the place of a field. It is no kind of field of the wire format."""
DEPTH_MAX = 8
LARGE_BYTES_MAX = 5 << 20
"""More bytes than gRPC takes."""
GROWN_BYTES_MAX = 32 << 10
NUMBERS = (0, 1, 2, 3, 127, 128, 255, 4096, 65_535, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63)
NUMBER_MAX = (1 << 64) - 1
NAMES = (
    b"", b"@", b"@@", b"\x00", b"\xff\xfe", b"\xc3(", b"q" * 255, b"q" * 256, b"@" + b"q" * 255, b"@" + b"q" * 256,
    b"k" * 5000, b"\xed\xa0\x80", b"q0", b"q1", b"k0", b"@q0",
)  # fmt: skip


class Field(NamedTuple):
    """A field of a message. `value`: the number of a VARINT; the bytes behind tag and length for all other kinds."""

    number: int
    kind: int
    value: int | bytes


def mutate(data: bytes, random: Random) -> bytes:
    """Returns the message after one mutation or a few. It stops early when the message has grown much."""
    before = len(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = _change_bytes if random.random() < 0.1 else _change_fields
        data = change(data, random)
        if len(data) > before + GROWN_BYTES_MAX:
            break
    return data


# The wire format.


def read_fields(data: bytes) -> list[Field] | None:
    """Returns the fields of `data`; None if it is no message."""
    found, position = [], 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == VARINT:
            value, position = _read_varint(data, position)
        elif kind == LENGTH or kind in _FIXED_BYTES:
            length = _FIXED_BYTES.get(kind, 0)
            if kind == LENGTH:
                length, position = _read_varint(data, position)
            value, position = data[position : position + length], position + length
        else:
            return None
        if not number or position > len(data):
            return None
        found.append(Field(number, kind, value))
    return found


def write_fields(fields: list[Field]) -> bytes:
    return b"".join(map(_write_field, fields))


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns (value, position behind it). The position is behind the data if the data ends within the number."""
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, len(data) + 1


def _write_field(field: Field) -> bytes:
    number, kind, value = field
    if kind == _RAW:
        assert isinstance(value, bytes)
        return value
    tag = varint(number << 3 | kind)
    if isinstance(value, int):
        return tag + varint(value)
    return tag + (varint(len(value)) if kind == LENGTH else b"") + value


# Mutations of fields.


def _change_fields(data: bytes, random: Random, depth: int = 0) -> bytes:
    fields = read_fields(data)
    if not fields:
        return _other_value(data, random)
    at = random.randrange(len(fields))
    field = fields[at]
    within = isinstance(field.value, bytes) and field.kind == LENGTH and depth < DEPTH_MAX
    if within and random.random() < 0.7:
        assert isinstance(field.value, bytes)
        fields[at] = field._replace(value=_change_fields(field.value, random, depth + 1))
        return write_fields(fields)
    random.choices(list(_CHANGES), list(_CHANGES.values()))[0](fields, at, random)
    return write_fields(fields)


def _repeat(fields: list[Field], at: int, random: Random) -> None:
    times = random.choice((1, 1, 1, 2, 5, 300))
    fields[at:at] = [fields[at]] * times


def _repeat_until_large(fields: list[Field], at: int, random: Random) -> None:
    size = random.choice((70 << 10, 200 << 10, 1 << 20, REQUEST_BYTES_MAX - 200, LARGE_BYTES_MAX))
    one = write_fields([fields[at]])
    fields[at:at] = [Field(0, _RAW, one * (size // max(1, len(one))))]


def _leave_out(fields: list[Field], at: int, random: Random) -> None:
    del fields[at]


def _move(fields: list[Field], at: int, random: Random) -> None:
    fields.insert(random.randrange(len(fields)), fields.pop(at))


def _another_number(fields: list[Field], at: int, random: Random) -> None:
    fields[at] = fields[at]._replace(number=random.choice((*range(1, 10), 15, 16, 1000, (1 << 29) - 1)))


def _another_kind(fields: list[Field], at: int, random: Random) -> None:
    kind = random.choice((VARINT, FIXED64, LENGTH, FIXED32, 3, 4, 6, 7))
    value: int | bytes = number_for(random) if kind == VARINT else random.randbytes(_FIXED_BYTES.get(kind, 3))
    fields[at] = Field(fields[at].number, kind, value)


def _unknown(fields: list[Field], at: int, random: Random) -> None:
    number = random.choice((13, 100, 19_000, (1 << 29) - 1))
    value: int | bytes = random.choice((number_for(random), random.randbytes(9)))
    fields.insert(at, Field(number, VARINT if isinstance(value, int) else LENGTH, value))


def _raw(fields: list[Field], at: int, random: Random) -> None:
    """Inserts numbers without an end, lengths beyond the end, groups within groups, or messages within messages."""
    tag = varint(fields[at].number << 3 | LENGTH)
    nested = b""
    for _ in range(random.choice((20, 110, 300))):
        nested = tag + varint(len(nested)) + nested
    odd = (
        b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff" * 11 + b"\x01", varint(fields[at].number << 3) + b"\xff" * 10,
        tag + varint(1 << 31), tag + varint(NUMBER_MAX), tag + b"\x7f", b"\x0b" * 200, b"\x0b\x0c", b"\x0c", b"\x00",
        nested,
    )  # fmt: skip
    fields.insert(at, Field(0, _RAW, random.choice(odd)))


def _another_value(fields: list[Field], at: int, random: Random) -> None:
    field = fields[at]
    if isinstance(field.value, int):
        fields[at] = field._replace(value=number_for(random))
    elif field.kind == LENGTH:
        fields[at] = field._replace(value=_other_value(field.value, random))


_Change = Callable[[list[Field], int, Random], None]
_CHANGES: dict[_Change, float] = {
    _another_value: 8, _repeat: 4, _leave_out: 3, _move: 1, _another_number: 2, _another_kind: 1, _unknown: 1, _raw: 1,
    _repeat_until_large: 0.2,
}  # fmt: skip


def number_for(random: Random) -> int:
    return random.choice((*NUMBERS, NUMBER_MAX, NUMBER_MAX - 1, random.getrandbits(64)))


def _other_value(data: bytes, random: Random) -> bytes:
    """Returns another value for a name, a body, or a column of numbers."""
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(NAMES)
    if kind == 1:
        return data + varint(number_for(random))
    if kind == 2:
        return b"".join(varint(number_for(random)) for _ in range(random.choice((1, 2, 3, 1001))))
    return _change_bytes(data, random)


# Mutations of bytes.


def _change_bytes(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    kind = random.randrange(5)
    if kind == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[at:]
    if kind == 3:
        return data[:at] + random.randbytes(random.choice((1, 2, 9, 300))) + data[at:]
    return data + data[:at]
