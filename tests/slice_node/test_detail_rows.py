"""What is read of a detail row, or changed in it, as bytes is what decoding and encoding it gives."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from shoal_slice_node.core.apply.acks import advance
from shoal_slice_node.core.apply.records import Acked
from shoal_slice_node.core.delivery_counts import Counted, DeliveryCounts
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import (
    Detail,
    decode_detail,
    done_end_of,
    encode_detail,
    with_acked,
    with_last_done,
    with_places,
)

offsets = st.integers(1, 40)
pairs = st.lists(st.tuples(offsets, offsets), max_size=12)
counts = st.sampled_from([[], [Counted(5, 9, 3)], [Counted(20, 22, 3), Counted(38, 61, 1)]])


@st.composite
def details(draw: st.DrawFn) -> Detail:
    done, counted = Ranges(draw(pairs)), DeliveryCounts(draw(counts))
    return Detail(draw(offsets), draw(offsets), draw(st.integers(0, 40)), done, counted)


@given(details(), st.integers(0, 50))
def test_the_end_of_a_done_range_is_found_in_the_row(detail: Detail, offset: int) -> None:
    assert done_end_of(encode_detail(detail), offset) == detail.done.end_of(offset)


@given(details(), offsets, offsets, st.integers(0, 40))
def test_places_are_changed_in_the_row(detail: Detail, start: int, cursor: int, end: int) -> None:
    changed = Detail(start, cursor, end, detail.done, detail.counts)
    assert with_places(encode_detail(detail), start, cursor, end) == encode_detail(changed)


@given(details(), offsets, st.integers(0, 5))
def test_a_done_range_above_all_others_is_added_to_the_row(detail: Detail, first: int, messages: int) -> None:
    row, last = encode_detail(detail), max((to for _, to in detail.done.pairs()), default=0)
    added = with_last_done(row, first, first + messages)
    assert (added is not None) == (last < first or (last == first and not messages))
    if added is not None:
        done = Ranges([*detail.done.pairs(), (first, first + messages)])
        assert decode_detail(added).done == done
        assert added == encode_detail(Detail(detail.start, detail.cursor, detail.end, done, detail.counts))


@given(details(), pairs)
def test_acks_are_taken_into_the_row(detail: Detail, acked: list[tuple[int, int]]) -> None:
    detail.done.cut_below(detail.done.end_of(detail.cursor) + 1)
    detail.cursor = detail.done.end_of(detail.cursor)
    acked = [(first, to) for first, to in acked if first < to]
    changed = with_acked(encode_detail(detail), acked)
    advance(detail, [Acked(b"queue", b"key", first, to) for first, to in acked])
    assert changed == encode_detail(detail)
