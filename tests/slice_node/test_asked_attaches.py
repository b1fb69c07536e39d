"""Which attaches came before a drop: each drop asks, and many may wait behind many attaches."""

from __future__ import annotations

import tracemalloc

from shoal_slice_node.core.dispatch.asked_attaches import AskedAttaches

NAMES = [b"q%d" % number for number in range(10_000)]


def test_drops_keep_no_names() -> None:
    """Each kept a set of all names: a MB a frame of 20 bytes, of which no share knew."""
    asked = AskedAttaches()
    asked.begin(NAMES)
    tracemalloc.start()
    try:
        drops = [asked.so_far() for _ in range(100)]
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(drop(NAMES[0]) and drop(NAMES[-1]) for drop in drops)
    assert taken_bytes < 1_000 * len(drops)


def test_an_attach_counts_for_the_drops_behind_it_until_it_is_done() -> None:
    asked = AskedAttaches()
    before = asked.so_far()
    asked.begin([b"a", b"b"])
    behind = asked.so_far()
    asked.begin([b"b", b"c"])
    last = asked.so_far()
    names = (b"a", b"b", b"c", b"d")
    assert [[drop(name) for name in names] for drop in (before, behind, last)] == [
        [False, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
    ]
    asked.end([b"a", b"b"])
    assert [last(name) for name in names] == [False, True, True, False], "b was asked for again"
    asked.end([b"b", b"c"])
    assert not any(drop(name) for drop in (before, behind, last) for name in names)
    asked.begin([b"a"])
    assert not any(drop(b"a") for drop in (before, behind, last)), "it was asked for after all of them"


def test_an_attach_behind_a_drop_does_not_count_for_it_once_those_before_it_are_done() -> None:
    """The number of the first frame stayed: a queue that was detached again was not dropped, as it was in use."""
    asked = AskedAttaches()
    asked.begin([b"a"])
    drop = asked.so_far()
    asked.begin([b"a"])
    last = asked.so_far()
    asked.begin([b"a"])
    asked.end([b"a"])
    assert not drop(b"a") and last(b"a")
    asked.end([b"a"])
    assert not last(b"a") and asked.so_far()(b"a")
