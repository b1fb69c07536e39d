"""Each kind of fault is found, told with its queue and key, and nothing else is taken for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from shoal_loadtest.residents.core.windows import DOUBLED, LOST, MISORDERED, OUTSIDE, Faults, Windows
from shoal_loadtest.residents.limits import EARLY_MAX, FAULT_CASES_MAX, MISSING_MAX

PLACE = 3


class Checked(Windows):
    """Windows with their faults at hand; place 3 is bound from offset 10."""

    def __init__(self) -> None:
        self.faults = Faults()
        super().__init__(8, self.faults, lambda place: f"queue q{place}, key k{place}")
        self.open(PLACE)
        self.opened(PLACE, 10)

    def saw_each(self, *offsets: int) -> None:
        for offset in offsets:
            self.saw(PLACE, offset, offset + 1, 0)


@pytest.fixture
def windows() -> Checked:
    return Checked()


def test_all_messages_in_order_are_no_fault(windows: Checked) -> None:
    windows.saw_each(10, 11, 12)
    windows.saw(PLACE, 13, 20, 0)
    windows.close(PLACE, 20)

    assert windows.done(PLACE)
    windows.forget(PLACE)
    assert windows.faults.counts == Counter()
    assert windows.seen == 10


def drop_one(windows: Checked) -> None:
    windows.saw_each(10, 12, 13)
    windows.close(PLACE, 14)
    assert not windows.done(PLACE)
    windows.forget(PLACE)


def drop_last(windows: Checked) -> None:
    windows.saw_each(10, 11)
    windows.close(PLACE, 13)
    assert not windows.done(PLACE)
    windows.forget(PLACE)


def drop_first(windows: Checked) -> None:
    windows.saw_each(11)
    windows.finish()


def double_one(windows: Checked) -> None:
    windows.saw_each(10, 11, 11, 12)


def swap_two(windows: Checked) -> None:
    windows.saw_each(10, 12, 11, 13)
    windows.close(PLACE, 14)
    assert windows.done(PLACE)


def before_the_bind(windows: Checked) -> None:
    windows.saw_each(9, 10)


def after_the_unbind(windows: Checked) -> None:
    windows.saw_each(10)
    windows.close(PLACE, 11)
    windows.saw_each(11)


def came_before_the_unbind_said_it_would_not(windows: Checked) -> None:
    windows.saw_each(10, 11)
    windows.close(PLACE, 11)


def for_no_member(windows: Checked) -> None:
    windows.saw(5, 10, 11, 0)


FAULTS: dict[Callable[[Checked], None], tuple[str, int]] = {
    drop_one: (LOST, PLACE),
    drop_last: (LOST, PLACE),
    drop_first: (LOST, PLACE),
    double_one: (DOUBLED, PLACE),
    swap_two: (MISORDERED, PLACE),
    before_the_bind: (OUTSIDE, PLACE),
    after_the_unbind: (OUTSIDE, PLACE),
    came_before_the_unbind_said_it_would_not: (OUTSIDE, PLACE),
    for_no_member: (OUTSIDE, 5),
}


@pytest.mark.parametrize("do", FAULTS, ids=lambda do: do.__name__)
def test_each_fault_is_found_and_nothing_else(windows: Checked, do: Callable[[Checked], None]) -> None:
    do(windows)

    kind, place = FAULTS[do]
    assert set(windows.faults.counts) == {kind}
    case = windows.faults.cases[0]
    assert case.kind == kind
    assert case.where == f"queue q{place}, key k{place}"


def test_lost_ones_are_counted_one_by_one(windows: Checked) -> None:
    windows.saw_each(10, 13)
    windows.close(PLACE, 16)
    windows.forget(PLACE)

    assert windows.faults.counts == {LOST: 4}  # 11, 12, 14, 15


def test_a_repeat_that_is_marked_is_none(windows: Checked) -> None:
    windows.saw_each(10, 11)
    windows.saw(PLACE, 10, 13, 1)

    assert windows.faults.counts == Counter()
    assert windows.redelivered == 2
    assert windows.came(PLACE, 12)


def test_what_comes_before_the_answer_to_the_bind_counts_from_its_offset(windows: Checked) -> None:
    windows.open(4)
    windows.saw(4, 7, 9, 0)
    assert not windows.watching(4, 7)
    windows.opened(4, 7)

    assert windows.came(4, 8)
    assert windows.faults.counts == Counter()

    windows.open(5)
    windows.saw(5, 6, 7, 0)
    windows.opened(5, 7)
    assert windows.faults.counts == {OUTSIDE: 1}


def test_an_audit_tells_what_must_have_come(windows: Checked) -> None:
    windows.saw_each(10, 12)

    assert not windows.watching(PLACE, 9)
    assert windows.watching(PLACE, 13)
    assert [windows.came(PLACE, offset) for offset in (10, 11, 12, 13)] == [True, False, True, False]
    windows.miss(PLACE, 12)
    assert windows.faults.counts == {LOST: 1}
    windows.miss(PLACE, 12)
    assert windows.faults.counts == {LOST: 1}


def test_a_place_can_be_bound_again(windows: Checked) -> None:
    windows.saw_each(10)
    windows.close(PLACE, 11)
    windows.forget(PLACE)
    windows.open(PLACE)
    windows.opened(PLACE, 15)
    windows.saw_each(15)

    assert windows.faults.counts == Counter()
    assert windows.start(PLACE) == 15


def test_a_dropped_queue_loses_only_what_was_passed_over(windows: Checked) -> None:
    windows.saw_each(10, 11)
    windows.forget(PLACE)
    assert windows.faults.counts == Counter()

    windows.open(PLACE)
    windows.opened(PLACE, 20)
    windows.saw_each(20, 22)
    windows.forget(PLACE)
    assert windows.faults.counts == {LOST: 1}


def test_memory_is_bounded_and_all_is_counted(windows: Checked) -> None:
    windows.saw_each(10, 10 + 2 * MISSING_MAX)
    windows.finish()
    assert windows.faults.counts[LOST] == 2 * MISSING_MAX - 1
    assert len(windows.faults.cases) == FAULT_CASES_MAX

    windows.open(6)
    for offset in range(EARLY_MAX + 1):
        windows.saw(6, 1 + offset, 2 + offset, 0)
    assert windows.faults.counts[OUTSIDE] == 1
