"""Ranges against a set of offsets."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from shoal_slice_node.core.ranges import Ranges

offsets = st.integers(0, 40)
pairs = st.lists(st.tuples(offsets, offsets), max_size=12)


@given(pairs, offsets, offsets)
def test_ranges_hold_what_was_added_and_not_cut(added: list[tuple[int, int]], cut: int, asked: int) -> None:
    ranges = Ranges(added)
    held = {offset for first, to in added for offset in range(first, to)}
    ranges.cut_below(cut)
    held = {offset for offset in held if offset >= cut}
    found = ranges.pairs()
    assert {offset for first, to in found for offset in range(first, to)} == held
    assert ranges.offsets() == len(held) and len(ranges) == len(found)
    assert all(first < to for first, to in found), "none is empty"
    assert all(to < first for (_, to), (first, _) in pairwise(found)), "touching ones are joined"
    assert ranges.end_of(asked) == next(offset for offset in range(asked, 100) if offset not in held)
    assert ranges.next_from(asked) == next((first for first, _ in found if first >= asked), None)
    assert ranges == Ranges(found)


@given(pairs, offsets, offsets)
def test_parts_in_a_stretch_are_found(added: list[tuple[int, int]], first: int, to: int) -> None:
    ranges = Ranges(added)
    held = {offset for low, high in added for offset in range(low, high)}
    inside = ranges.within(first, to)
    assert {o for low, high in inside for o in range(low, high)} == {o for o in range(first, to) if o in held}
    assert all(low < high for low, high in inside)
    assert list(ranges.walk(first, to)) == inside and ranges.count_within(first, to) == len(inside)
    behind = [low for low, high in ranges.pairs() if high > first]
    assert [ranges.begin_behind(first, count) for count in range(14)] == (behind + [None] * 14)[:14]


@given(pairs, offsets)
def test_what_is_cut_above_is_returned(added: list[tuple[int, int]], cut: int) -> None:
    ranges = Ranges(added)
    held = {offset for low, high in added for offset in range(low, high)}
    gone = ranges.cut_above(cut)
    assert {o for low, high in gone for o in range(low, high)} == {o for o in held if o >= cut}
    assert {o for low, high in ranges.pairs() for o in range(low, high)} == {o for o in held if o < cut}
    assert Ranges.of_sorted(ranges.flat()) == ranges
