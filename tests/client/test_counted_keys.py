"""What all watches of counts of one client keep is bounded: a gateway has one client for hundreds of them."""

from __future__ import annotations

import pytest

from shoal.core import watched
from shoal.core.watched import CountedKeys, WatchedCounts
from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire


def told(first: int, count: int, queues: int = 1) -> wire.WatchResponse:
    keys = [b"k%d" % number for number in range(first, first + count)]
    return wire.WatchResponse(keys=keys, bindings=[queues] * count, online=[0] * count)


def test_the_keys_of_all_watches_are_bounded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "COUNTED_KEYS_OF_ALL_MAX", 100)
    counted = CountedKeys()
    one, other = WatchedCounts(counted), WatchedCounts(counted)
    one.take("s01", told(0, 60))
    other.take("s01", told(0, 30))
    other.take("s02", told(100, 10))
    with pytest.raises(ResourceExhausted, match=r"keys of all watches of counts .*: 101; the limit is 100"):
        other.take("s01", told(50, 1))
    other.end()
    assert counted.keys == 60
    one.take("s01", told(0, 20, queues=0))
    assert counted.keys == 40, "keys without queues are not kept"
    third = WatchedCounts(counted)
    third.take("s01", told(0, 60))
    for watch in (one, one, third):
        watch.end()
    assert counted.keys == 0


def test_the_bound_of_one_watch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "COUNTED_KEYS_MAX", 10)
    with pytest.raises(ResourceExhausted, match="keys of one watch of counts"):
        WatchedCounts().take("s01", told(0, 11))
