"""What was seen is told from news, for any order of ranges; memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.limits import SEEN_RANGES_MAX
from shoal.seen import Seen

SPANS = st.tuples(st.integers(1, 40), st.integers(1, 8)).map(lambda span: (span[0], span[0] + span[1]))
HANDLES = st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True)


@given(st.lists(st.tuples(SPANS, HANDLES), max_size=40))
def test_agrees_with_a_set_of_offsets(steps: list[tuple[tuple[int, int], list[int]]]) -> None:
    seen, model = Seen(), {handle: set[int]() for handle in range(1, 5)}
    for (first, end), handles in steps:
        new = {(handle, offset) for handle in handles for offset in range(first, end) if offset not in model[handle]}
        parts = seen.add(b"key", first, end, handles)
        told = [(handle, offset) for low, high, same in parts for handle in same for offset in range(low, high)]
        assert sorted(told) == sorted(new)
        for handle in handles:
            model[handle] |= set(range(first, end))
            known = seen.known(b"key", 1, 60, handle)
            assert {offset for low, high in known for offset in range(low, high)} == model[handle]


def test_handles_in_step_stay_one_part() -> None:
    seen = Seen()
    handles = [1, 2, 3]
    assert seen.add(b"key", 5, 9, handles) == [(5, 9, handles)]
    assert seen.add(b"key", 9, 12, handles) == [(9, 12, handles)]
    assert seen.add(b"key", 9, 12, handles) == []


def test_forgets_the_key_used_longest_ago() -> None:
    seen = Seen(entries_max=4)
    seen.add(b"a", 1, 2, [1, 2])
    seen.add(b"b", 1, 2, [1, 2])
    seen.add(b"a", 2, 3, [1, 2])
    seen.add(b"c", 1, 2, [1])
    assert seen.known(b"a", 1, 9, 1) == [(1, 3)]
    assert seen.known(b"b", 1, 9, 1) == []


def test_forgets_the_lowest_ranges() -> None:
    seen = Seen()
    for number in range(SEEN_RANGES_MAX + 1):
        seen.add(b"a", 10 * number + 1, 10 * number + 2, [1])
    assert seen.known(b"a", 1, 2, 1) == []
    assert seen.known(b"a", 11, 12, 1) == [(11, 12)]
