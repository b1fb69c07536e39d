"""What came and went since the last checkpoint: a page looks at a bounded number of members, what one has passed the
next need not, and a look into a log passes nothing that lies before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal_slice_node.core.limits import DEAD_KEYS_MIN, PAGE_MEMBERS_MIN, RECENT_KEYS_MAX
from shoal_slice_node.core.rows.ids import queue_id
from shoal_slice_node.core.tables.delta_groups import DeltaGroups
from shoal_slice_node.core.tables.delta_logs import DeltaLogs
from shoal_slice_node.core.tables.key_order import KeyOrder
from shoal_slice_node.core.tables.memory_tables import MemoryGroups, MemoryLogs

KEY = b"key-0001"
MANY = 20_000


class Passed:
    """See delta_groups.BaseGroups: one group with the members 0 to MANY. `members`: how many were asked for."""

    def __init__(self) -> None:
        self.members = 0

    def count(self, group: bytes) -> int:
        return MANY

    def entries(self) -> int:
        return MANY

    def has(self, group: bytes, member: bytes) -> bool:
        return int.from_bytes(member, "big") < MANY

    def page(self, group: bytes, after: bytes, limit: int) -> list[bytes]:
        first = int.from_bytes(after, "big") + 1 if after else 0
        self.members += limit
        return [queue_id(number) for number in range(first, min(first + limit, MANY))]

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(())


class Asked(set[bytes]):
    """Counts how often it is asked whether it has a key."""

    times = 0

    def __contains__(self, key: object) -> bool:
        self.times += 1
        return super().__contains__(key)


def listed(groups: DeltaGroups, limit: int) -> list[int]:
    found: list[int] = []
    after, is_first = b"", True
    while after or is_first:
        page, after = groups.members(KEY, after, limit)
        found += (int.from_bytes(member, "big") for member in page)
        is_first = False
    return found


def test_a_page_looks_at_a_bounded_number_of_members_and_the_next_list_passes_none_again() -> None:
    """A list of a key that everybody had left took as long as all its former members, each time, in one step."""
    base = Passed()
    groups = DeltaGroups(base)
    for number in range(MANY):
        if number not in (7_000, MANY - 1):
            groups.remove(KEY, queue_id(number))
    groups.members(KEY, b"", 1)
    assert base.members <= PAGE_MEMBERS_MIN
    assert listed(groups, 10) == [7_000, MANY - 1]
    before = base.members
    assert listed(groups, 10) == [7_000, MANY - 1]
    assert base.members - before <= 6 * PAGE_MEMBERS_MIN
    groups.add(KEY, queue_id(3_000))
    assert listed(groups, 10) == [3_000, 7_000, MANY - 1]


def test_whether_there_is_a_member_passes_no_other() -> None:
    """Each look for a queue below 100,000 that had left passed all of them."""
    base = Passed()
    groups = DeltaGroups(base)
    for number in range(1, MANY):
        groups.remove(KEY, queue_id(number))
    assert groups.has(KEY, queue_id(0)) and not groups.has(KEY, queue_id(1)) and not groups.has(KEY, queue_id(MANY))
    assert base.members == 0


def test_a_page_after_each_member_that_comes_does_not_sort_all_of_them() -> None:
    """A list, or a watch, after each of many joins took 15 ms beside 100,000 members that had come."""
    groups = DeltaGroups(MemoryGroups())
    for number in range(2 * RECENT_KEYS_MAX):
        groups.add(KEY, queue_id(2 * number))
    groups.members(KEY)
    ops = groups._active[KEY]
    assert not isinstance(ops, bytes) and ops.order is not None
    runs = [run for run in ops.order._runs if len(run) >= RECENT_KEYS_MAX]
    for number in range(100):
        groups.add(KEY, queue_id(2 * number + 1))
        assert groups.members(KEY, queue_id(2 * number), 2)[0] == [queue_id(2 * number + 1), queue_id(2 * number + 2)]
    assert runs and all(run in ops.order._runs for run in runs), "sorted anew"


def test_keys_that_came_and_went_are_passed_once() -> None:
    """A queue's new details were taken from the first on, in small steps: each passed all that were taken before."""
    keys = [queue_id(number) for number in range(MANY)]
    order, live = KeyOrder(keys), Asked(keys[:-1])
    for start in range(0, MANY - 1, 50):
        live.difference_update(keys[start : start + 50])
        next(order.between(b"", b"", live), None)
    assert live.times < 10 * MANY and len(order) <= 2 * DEAD_KEYS_MIN
    order.note(keys[5], live)
    live.add(keys[5])
    assert list(order.between(b"", b"", live)) == [keys[5]]


def test_keys_that_came_and_went_leave_bit_by_bit_also_where_nobody_looks() -> None:
    order, live = KeyOrder(), Asked()
    for number in range(40 * RECENT_KEYS_MAX):
        order.note(queue_id(number), live)
    assert len(order) < 20 * RECENT_KEYS_MAX


class Forward(list[Any]):
    """Must not be passed from its beginning on."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("all rows before the one that was asked for are passed")


def test_a_look_into_a_long_log_passes_no_rows_before_it() -> None:
    """Each cost 1.4 ms behind 114,000 rows: 200 binds by age, 3.5 KB, stopped a slice for 2 s."""
    logs = DeltaLogs(MemoryLogs())
    for layer in range(2):
        for first in range(1 + 100 * layer, 101 + 100 * layer):
            logs.append(KEY, first, b"row")
        if not layer:
            logs.freeze()
    for of in (logs._layer, logs._frozen):
        of.rows[KEY] = Forward(of.of(KEY))
    for look in (logs.read, logs.heads):
        assert next(look(KEY, 1, 50))[0] == 50 and next(look(KEY, 1, 150))[0] == 150
        assert [first for first, _ in look(KEY, 1, 90)] == list(range(90, 201))
