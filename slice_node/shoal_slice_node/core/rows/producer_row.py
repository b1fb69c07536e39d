"""Encodes table `producer`: producers, which number frames, and the answers that they may still ask for again.

producer 16             ->  form u8: 1 | last sequence u64 | time_ms u64 of its last frame | sequences kept u64 each,
                            ascending
producer 16 | seq u64   ->  form u8: 1 | serialized Outcome
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from shoal_slice_node.core.rows.forms import check_form

FORM: Final = 1
_HEADER = Struct(">BQQ")
_STORED = bytes((FORM,))


class ProducerRow(NamedTuple):
    last: int
    time_ms: int
    kept: tuple[int, ...]


def encode_producer(row: ProducerRow) -> bytes:
    return _HEADER.pack(FORM, row.last, row.time_ms) + Struct(f">{len(row.kept)}Q").pack(*row.kept)


def decode_producer(row: bytes) -> ProducerRow:
    check_form("producer", row, FORM, _HEADER.size)
    _, last, time_ms = _HEADER.unpack_from(row)
    return ProducerRow(last, time_ms, Struct(f">{len(row) // 8 - 2}Q").unpack_from(row, _HEADER.size))


def answer_key(producer: bytes, sequence: int) -> bytes:
    return producer + sequence.to_bytes(8, "big")


def encode_answer(outcome: bytes) -> bytes:
    return _STORED + outcome


def decode_answer(row: bytes) -> bytes:
    check_form("producer", row, FORM, 1)
    return row[1:]
