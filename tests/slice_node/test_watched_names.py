"""A watched key may know two lives of a queue for a while: watches are told of one name."""

from __future__ import annotations

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.watching.watch_room import WatchRoom
from shoal_slice_node.core.watching.watched_key import WatchedKey
from shoal_slice_node.core.watching.watcher import Watcher
from tests.slice_node.core_driver import CoreDriver
from tests.slice_node.told_watch import JOINED, JOINED_ONLINE, LEFT, OFFLINE, ONLINE

FORMER, NEXT = b"1" * 8, b"2" * 8


class Key:
    """A watched key that has looked up its members: none. A watch follows it from here on."""

    def __init__(self) -> None:
        self._counting = CoreDriver().node.watching._counting
        self.watched = WatchedKey(wire.WatchPosition(life=1, watch=1), b"k", True, {}, WatchRoom(Share("x", 1 << 30)))
        self.watched.load_step(self._counting, lambda _: False)
        assert self.watched.loaded
        self._watcher = Watcher(1, "c", self.watched.number)
        self._watcher.greeted = True

    def told(self) -> list[tuple[int, bytes]]:
        """What the watch is told now."""
        response = self.watched.answer(self._watcher, self._counting)
        return [] if response is None else list(zip(response.changes, response.queues, strict=True))

    def snapshot(self) -> list[bytes]:
        """The members that a new watch is told of."""
        response = self.watched.answer(Watcher(2, "d", -1), self._counting)
        assert response is not None and response.snapshot and not response.more
        return list(response.queues)


def test_a_former_life_that_ends_its_session_is_not_told() -> None:
    key = Key()
    key.watched.joined(FORMER, b"a", True)
    key.watched.joined(NEXT, b"a", True)
    key.watched.attached(FORMER, False)
    assert key.told() == [(JOINED_ONLINE, b"a")]


def test_the_next_life_is_told_of_as_far_as_it_differs() -> None:
    key = Key()
    key.watched.joined(FORMER, b"a", False)
    key.watched.joined(NEXT, b"a", True)
    assert key.told() == [(JOINED, b"a"), (ONLINE, b"a")]


def test_the_life_that_stays_is_told_of_as_far_as_it_differs() -> None:
    key = Key()
    key.watched.joined(FORMER, b"a", False)
    key.watched.joined(NEXT, b"a", True)
    key.watched.left(NEXT)
    assert key.told() == [(JOINED, b"a"), (ONLINE, b"a"), (OFFLINE, b"a")]
    assert key.watched.left(FORMER)
    assert key.told() == [(LEFT, b"a")]


def test_a_snapshot_has_a_name_once() -> None:
    key = Key()
    key.watched.joined(FORMER, b"a", False)
    key.watched.joined(NEXT, b"a", True)
    key.watched.joined(b"3" * 8, b"b", False)
    assert key.snapshot() == [b"a", b"b"]


def test_what_is_looked_up_anew_has_no_other_lives() -> None:
    key = Key()
    key.watched.joined(FORMER, b"a", False)
    key.watched.joined(NEXT, b"a", True)
    key.watched.look_up_anew()
    key.watched.load_step(key._counting, lambda _: False)
    key.watched.joined(NEXT, b"a", True)
    assert key.snapshot() == [b"a"]
    assert key.watched.left(NEXT)
    assert key.snapshot() == []
