"""Encodes table `detail`: queue id | key id -> what only few bindings have: an end (unbound with backlog), done ranges,
counts of deliveries.

0   form u8: 1, without counts of deliveries; 2, with them
1   start u64 · 9 cursor u64 · 17 end u64 (0 while live: start and cursor stand in the queue's bucket)
    form 1: done ranges, u64 from | u64 to each, ascending, disjoint, above the cursor
    form 2: 25 number of done ranges u32 | done ranges | counts, u64 from | u64 to | u32 deliveries each, ascending,
            disjoint, of offsets that are not done
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct, unpack_from
from typing import Final

from shoal_slice_node.core.delivery_counts import Counted, DeliveryCounts
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.forms import unknown_form

KEY_ID: Final = slice(8, None)
"""The place of the key id in the row's key."""

FORM: Final = 1
FORM_COUNTS: Final = 2
_HEADER = Struct(">BQQQ")
_HEADER_COUNTS = Struct(">BQQQI")
_COUNT = Struct(">QQI")
_COUNT_OF_DONE = Struct(">I")
_OFFSET = Struct(">Q")
_RANGE = Struct(">QQ")
_RANGE_BYTES = 16


@dataclass(slots=True)
class Detail:
    """Describes one detail row. `end` 0: the binding is live."""

    start: int
    cursor: int
    end: int = 0
    done: Ranges = field(default_factory=Ranges)
    counts: DeliveryCounts = field(default_factory=DeliveryCounts)

    @property
    def ended(self) -> bool:
        return self.end != 0

    def raise_to(self, low: int) -> None:
        """Leaves out what is below `low`, which the key does not keep any more: it counts as done."""
        if self.cursor < low:
            self.cursor = self.done.end_of(low)
            self.done.cut_below(self.cursor)
            if self.counts:
                self.counts.cut_below(self.cursor)


def detail_key(queue_id: bytes, key_id: bytes) -> bytes:
    return queue_id + key_id


def encode_detail(detail: Detail) -> bytes:
    flat = detail.done.flat()
    done = Struct(f">{len(flat)}Q").pack(*flat)
    return _row(detail.start, detail.cursor, detail.end, done, detail.counts)


def _row(start: int, cursor: int, end: int, done: bytes, counts: DeliveryCounts) -> bytes:
    if not counts:
        return _HEADER.pack(FORM, start, cursor, end) + done
    head = _HEADER_COUNTS.pack(FORM_COUNTS, start, cursor, end, len(done) // _RANGE_BYTES)
    return b"".join((head, done, *(_COUNT.pack(*one) for one in counts)))


def _counts(row: bytes, begin: int) -> DeliveryCounts:
    return DeliveryCounts([Counted._make(one) for one in _COUNT.iter_unpack(row[begin:])])


def _places(row: bytes) -> tuple[int, int]:
    """Returns where done ranges begin and end. Raises ValueError for a form that this version does not know."""
    if len(row) < _HEADER.size:
        raise ValueError(f"a row of table detail has {len(row)} bytes; form 1 has at least {_HEADER.size}")
    if row[0] == FORM:
        return _HEADER.size, len(row)
    if row[0] != FORM_COUNTS:
        raise unknown_form("detail", row, "1 and 2")
    begin = _HEADER_COUNTS.size
    end = begin + _RANGE_BYTES * int.from_bytes(row[_HEADER.size : begin], "big")
    if end > len(row) or (len(row) - end) % _COUNT.size:
        raise ValueError(f"a row of table detail has {len(row)} bytes; its done ranges end at {end}")
    return begin, end


def count_done(row: bytes) -> int:
    """Returns how many done ranges a row has."""
    begin, end = _places(row)
    return (end - begin) // _RANGE_BYTES


def count_ranges(row: bytes) -> int:
    """Returns about how many ranges a row has, done ranges and counts together: what decoding it costs."""
    return (len(row) - _HEADER.size) // _RANGE_BYTES


def done_offsets(row: bytes, above: int = 0) -> tuple[int, ...]:
    """Returns where a row's done ranges begin and end, of those that end above `above`: from, to, from, to, ...
    ascending."""
    begin, end = _places(row)
    if above:
        begin += _RANGE_BYTES * _ranges_up_to(row, begin + 8, end, above)
    return unpack_from(f">{(end - begin) // 8}Q", row, begin)


def count_done_offsets(row: bytes, above: int = 0) -> int:
    """Returns how many offsets a row's done ranges hold from `above` on: twice as fast as decoding the ranges."""
    flat = done_offsets(row, above)
    count = sum(flat[1::2]) - sum(flat[::2])
    return count - max(0, above - flat[0]) if flat else 0


def done_ranges_above(row: bytes, offset: int, count: int) -> list[tuple[int, int]]:
    """Returns up to `count` of a row's done ranges, the first ones that end above `offset`."""
    begin, end = _places(row)
    begin += _RANGE_BYTES * _ranges_up_to(row, begin + 8, end, offset)
    return list(_RANGE.iter_unpack(row[begin : min(end, begin + _RANGE_BYTES * count)]))


def places_of(row: bytes) -> tuple[int, int, int]:
    """Returns a row's start, cursor and end, without a look at the ranges. The end of a live binding is 0."""
    _places(row)
    _, start, cursor, end = _HEADER.unpack_from(row)
    return start, cursor, end


def cursor_and_end(row: bytes) -> tuple[int, int]:
    """Returns a row's cursor and end, as `places_of` does."""
    return places_of(row)[1:]


def _ranges_up_to(row: bytes, begin: int, end: int, offset: int) -> int:
    """Returns how many of a row's done ranges have an offset of at most `offset` at their place in `begin`: their first
    one, or, 8 bytes later, their `to`. Both ascend. `end`: where the ranges end."""
    low, high = 0, (end - begin + 8) // _RANGE_BYTES
    while low < high:
        middle = (low + high) // 2
        if _offset_at(row, begin + _RANGE_BYTES * middle) <= offset:
            low = middle + 1
        else:
            high = middle
    return low


def _offset_at(row: bytes, position: int) -> int:
    found: int = _OFFSET.unpack_from(row, position)[0]
    return found


def done_end_of(row: bytes, offset: int) -> int:
    """Returns the end of the done range that holds `offset`, else `offset`, as Ranges.end_of does: by a search in the
    row, which takes a few microseconds where decoding thousands of ranges takes hundreds."""
    begin, end = _places(row)
    return _end_of(row, begin, end, offset)


def _end_of(row: bytes, begin: int, end: int, offset: int) -> int:
    count = _ranges_up_to(row, begin, end, offset)
    return max(offset, _offset_at(row, begin + _RANGE_BYTES * count - 8)) if count else offset


def acked_by_search(acks: int, ranges: int) -> bool:
    """Returns whether so many acks of a row with so many ranges cost less where each is found by a search."""
    return acks <= ranges // DONE_RANGES_PER_COST


def with_acked(row: bytes, acked: Iterable[tuple[int, int]]) -> bytes:
    """Returns a row in which these offsets, first <= offset < to, are done too. For few acks of a row with many done
    ranges: each is found by a search, and copies them. Counts of deliveries are decoded."""
    begin, end = _places(row)
    _, start, cursor, ends = _HEADER.unpack_from(row)
    done, counts = row[begin:end], _counts(row, end)
    for first, to in acked:
        if counts:
            counts.cut(first, to)
        if first <= cursor:
            cursor = max(cursor, to)
        elif first < to:
            left, right = _ranges_up_to(done, 8, len(done), first - 1), _ranges_up_to(done, 0, len(done), to)
            if left < right:  # It touches these: they become one.
                first = min(first, _offset_at(done, _RANGE_BYTES * left))
                to = max(to, _offset_at(done, _RANGE_BYTES * right - 8))
            done = b"".join((done[: _RANGE_BYTES * left], _RANGE.pack(first, to), done[_RANGE_BYTES * right :]))
    cursor = _end_of(done, 0, len(done), cursor)
    done = done[_RANGE_BYTES * _ranges_up_to(done, 8, len(done), cursor) :]
    if counts:
        counts.cut_below(cursor)
    return _row(start, cursor, ends, done, counts)


def with_places(row: bytes, start: int, cursor: int, end: int) -> bytes:
    """Returns a row as it is, but for where its binding starts, stands and ends."""
    _places(row)
    return _HEADER.pack(row[0], start, cursor, end) + row[_HEADER.size :]


def with_last_done(row: bytes, first: int, to: int) -> bytes | None:
    """Returns a row with one more done range, `first` <= offset < `to`, above all others; an empty one changes nothing.
    None: it does not lie above them, or touches one."""
    begin, end = _places(row)
    last = _offset_at(row, end - 8) if end > begin else 0
    if last > first or (last == first < to):
        return None
    if first == to:
        return row
    head = row[: _HEADER.size]
    if row[0] == FORM_COUNTS:
        head += _COUNT_OF_DONE.pack((end - begin) // _RANGE_BYTES + 1)
    return b"".join((head, row[begin:end], _RANGE.pack(first, to), row[end:]))


def decode_detail(row: bytes) -> Detail:
    _, end = _places(row)
    _, start, cursor, ends = _HEADER.unpack_from(row)
    return Detail(start, cursor, ends, Ranges.of_sorted(done_offsets(row)), _counts(row, end))
