"""What watches keep is bounded, for each, and for all watches of counts of a client: a gateway has one client for
hundreds of them."""

from __future__ import annotations

import pytest

from shoal.core import watched
from shoal.core.watched import CountedKeys, WatchedCounts, WatchedMembers
from shoal_contract.errors import Malformed, ResourceExhausted
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


def test_a_snapshot_of_counts_without_end_keeps_only_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without queues are not kept, and so nothing of them is."""
    monkeypatch.setattr(watched, "COUNTED_KEYS_MAX", 10)
    counts = WatchedCounts()
    for first in range(0, 100, 10):
        part = told(first, 10, queues=0)
        part.snapshot = part.more = True
        assert counts.take("s01", part) == []
    assert not any(counts._snapshots.values())
    part = told(0, 11)
    part.snapshot = part.more = True
    with pytest.raises(ResourceExhausted, match="keys of one watch of counts"):
        counts.take("s01", part)


def test_what_changes_while_a_snapshot_comes_is_kept_as_it_is_now() -> None:
    counts = WatchedCounts()
    begun = wire.WatchResponse(snapshot=True, more=True, keys=[b"a", b"b"], bindings=[1, 1])
    counts.take("s01", begun)
    counts.take("s01", wire.WatchResponse(keys=[b"b", b"c"], bindings=[0, 2]))
    assert counts.take("s01", wire.WatchResponse(snapshot=True)) == []
    assert counts._known == {"s01": {b"a": (1, 0), b"c": (2, 0)}}


def members(first: int, count: int, snapshot: bool = False, more: bool = False) -> wire.WatchResponse:
    queues = [b"q%d" % number for number in range(first, first + count)]
    changes = [wire.MEMBER_CHANGE_JOINED] * count
    place = wire.WatchPosition(life=1, watch=1, number=first)
    return wire.WatchResponse(queues=queues, changes=changes, position=place, snapshot=snapshot, more=more)


def test_a_snapshot_of_members_without_end_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "WATCHED_MEMBERS_MAX", 25)
    kept = WatchedMembers()
    for first in (0, 10):
        assert kept.take(members(first, 10, snapshot=True, more=True)) == []
    with pytest.raises(ResourceExhausted, match=r"members of one watched key.*: 30; the limit is 25"):
        kept.take(members(20, 10, snapshot=True, more=True))


def test_members_that_join_without_end_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "WATCHED_MEMBERS_MAX", 25)
    kept = WatchedMembers()
    kept.take(members(0, 20, snapshot=True))
    with pytest.raises(ResourceExhausted, match=r"members of one watched key.*: 26; the limit is 25"):
        kept.take(members(20, 10))


@pytest.mark.parametrize(
    "told",
    [
        wire.WatchResponse(snapshot=True, queues=[b"q"]),
        wire.WatchResponse(queues=[b"q"]),
        wire.WatchResponse(snapshot=True, keys=[b"k"]),
        wire.WatchResponse(keys=[b"k"], bindings=[1], online=[1, 2]),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(told: wire.WatchResponse) -> None:
    for take in (WatchedMembers().take, lambda told: WatchedCounts().take("s01", told)):
        with pytest.raises(Malformed, match="an answer to a watch cannot be read"):
            take(told)
