"""What is emptied from its front takes time in proportion to what is in it: to take the first out of a dict again and
again is quadratic."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time
from types import SimpleNamespace
from typing import cast

import pytest

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.watching.member_line import Followed, MemberLine

LESS, MORE = 15_000, 60_000


def takes(count: int) -> float:
    session = Session(1, 1 << 30)
    for number in range(count):
        session.add_parcel(
            (b"k", number, number + 1, 0, 0, 0), Parcel(b"key", number + 1, number + 1, number + 2, b"", 0, 0)
        )
    return spent(lambda: session.take(1 << 30), lambda: not session.waiting)


def serves_stalled(count: int) -> float:
    session = Session(1, 1 << 30)
    for number in range(count):
        session.turn_away(cast(Feed, SimpleNamespace(queue_id=b"%d" % number)), 600)
    return spent(lambda: [session.turned_away.next(False) for _ in range(count)], lambda: not session.turned_away)


def counts_consumed(count: int) -> float:
    line = MemberLine({}, {}, {}, cast(Followed, SimpleNamespace(count=lambda *_: 0, longest_prefix=lambda _: b"")))
    for number in range(count):
        line.in_memory_changed(b"%d" % number)

    def steps() -> None:
        while line:
            line.step()

    return spent(steps, lambda: not line)


def spent(work: Callable[[], object], done: Callable[[], bool]) -> float:
    gc.collect()
    gc.disable()  # It would look at all that other tests left, too.
    try:
        began_s = process_time()
        work()
        assert done()
        return process_time() - began_s
    finally:
        gc.enable()


@pytest.mark.parametrize("work", [takes, serves_stalled, counts_consumed], ids=lambda one: one.__name__)
def test_four_times_as_much_takes_four_times_as_long(
    work: Callable[[int], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_slice_node.core.watching.member_line.COUNTS_WAITING_MAX", MORE)
    less_s, more_s = (min(work(count) for _ in range(3)) for count in (LESS, MORE))
    ratio = more_s / max(1e-9, less_s)
    assert ratio < 8, f"four times as much took {ratio} times as long; a quadratic search takes 16 times as long"
