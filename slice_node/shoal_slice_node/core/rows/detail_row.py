"""Encodes table `detail`: queue id | key id -> what only few bindings have: an end (unbound with backlog), done ranges.

0   form u8: 1
1   start u64 · 9 cursor u64 · 17 end u64 (0 while live: start and cursor stand in the queue's bucket)
25  done ranges, u64 from | u64 to each, ascending, disjoint, above the cursor
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct, unpack_from
from typing import Final

from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.forms import check_form

KEY_ID: Final = slice(8, None)
"""The place of the key id in the row's key."""

FORM: Final = 1
_HEADER = Struct(">BQQQ")


@dataclass(slots=True)
class Detail:
    """Describes one detail row. `end` 0: the binding is live."""

    start: int
    cursor: int
    end: int = 0
    done: Ranges = field(default_factory=Ranges)

    @property
    def ended(self) -> bool:
        return self.end != 0


def detail_key(queue_id: bytes, key_id: bytes) -> bytes:
    return queue_id + key_id


def encode_detail(detail: Detail) -> bytes:
    flat = detail.done.flat()
    head = _HEADER.pack(FORM, detail.start, detail.cursor, detail.end)
    return head + Struct(f">{len(flat)}Q").pack(*flat)


def count_done(row: bytes) -> int:
    """Returns how many done ranges a row has."""
    return (len(row) - _HEADER.size) // 16


def count_done_offsets(row: bytes) -> int:
    """Returns how many offsets a row's done ranges hold: twice as fast as decoding the ranges."""
    check_form("detail", row, FORM, _HEADER.size)
    flat: tuple[int, ...] = unpack_from(f">{2 * count_done(row)}Q", row, _HEADER.size)
    return sum(flat[1::2]) - sum(flat[::2])


def cursor_and_end(row: bytes) -> tuple[int, int]:
    """Returns a row's cursor and end, without a look at the done ranges. The end of a live binding is 0."""
    check_form("detail", row, FORM, _HEADER.size)
    _, _, cursor, end = _HEADER.unpack_from(row)
    return cursor, end


def decode_detail(row: bytes) -> Detail:
    check_form("detail", row, FORM, _HEADER.size)
    _, start, cursor, end = _HEADER.unpack_from(row)
    count = (len(row) - _HEADER.size) // 8
    flat = Struct(f">{count}Q").unpack_from(row, _HEADER.size)
    return Detail(start, cursor, end, Ranges.of_sorted(flat))
