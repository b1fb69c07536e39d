"""A watch of the pure node as a client sees it: it takes what is told, and keeps the state that follows from it."""

from __future__ import annotations

from typing import Protocol

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.turns import finish
from tests.slice_node.core_driver import CoreDriver

JOINED = wire.MEMBER_CHANGE_JOINED
JOINED_ONLINE = wire.MEMBER_CHANGE_JOINED_ONLINE
LEFT = wire.MEMBER_CHANGE_LEFT
ONLINE = wire.MEMBER_CHANGE_ONLINE
OFFLINE = wire.MEMBER_CHANGE_OFFLINE
Told = tuple[wire.MemberChange.ValueType, str]


class WatchDriver(Protocol):
    """Drives the node whose watches these are."""

    @property
    def node(self) -> Node: ...

    @property
    def now_ms(self) -> int: ...


class ToldWatch:
    """`members`: name -> online, None where counts are told. `counts`: key -> (bound, consumed). `snapshots`: how many
    came."""

    def __init__(
        self,
        core: WatchDriver,
        *,
        key: str | None = None,
        prefix: str | None = None,
        presence: bool = True,
        after: wire.WatchPosition | None = None,
        connection: str = "c1",
    ) -> None:
        self.core = core
        request = wire.WatchRequest(presence=presence, after=after)
        if key is not None:
            request.members = key.encode()
        if prefix is not None:
            request.counts = prefix.encode()
        self.watcher = core.node.watching.watch(request, connection)
        self.members: dict[str, bool] | None = None
        self.counts: dict[str, tuple[int, int]] = {}
        self.position = after or wire.WatchPosition()
        self.snapshots = 0
        self.responses = 0
        self._in_snapshot = False

    def take_one(self) -> wire.WatchResponse | None:
        """One response."""
        response = finish(self.core.node.watching.answer(self.watcher, self.core.now_ms))
        if response is not None:
            self.responses += 1
            self._take(response)
        return response

    def take(self) -> list[Told]:
        """All that is told now, a snapshot left out."""
        told: list[Told] = []
        while (response := self.take_one()) is not None:
            if not response.snapshot:
                told += zip(response.changes, (queue.decode() for queue in response.queues), strict=True)
        return told

    def _take(self, response: wire.WatchResponse) -> None:
        assert response.HasField("position") == (not response.more)
        if response.snapshot and not self._in_snapshot:
            self.snapshots += 1
            self.members = None if response.keys else {}
            self.counts = {}
        self._in_snapshot = response.snapshot and response.more
        for change, queue in zip(response.changes, response.queues, strict=True):
            assert self.members is not None
            self._change(change, queue.decode())
        online = response.online or [0] * len(response.keys)
        for key, bound, consumed in zip(response.keys, response.bindings, online, strict=True):
            self.counts[key.decode()] = bound, consumed
            if not bound:
                del self.counts[key.decode()]
        if not response.more:
            self.position = response.position

    def _change(self, change: wire.MemberChange.ValueType, queue: str) -> None:
        """Each change is one: nothing is told twice."""
        assert self.members is not None
        if change in (JOINED, JOINED_ONLINE):
            assert queue not in self.members
            self.members[queue] = change == JOINED_ONLINE
        elif change == LEFT:
            del self.members[queue]
        else:
            assert self.members[queue] != (change == ONLINE)
            self.members[queue] = change == ONLINE

    def leave(self) -> None:
        self.core.node.watching.end_watch(self.watcher, self.core.now_ms)


def settle(core: CoreDriver, ms: int = 1_000) -> None:
    """Time passes, and all that is due is told."""
    core.now_ms += ms
    core.maintain()
    while core.node.turn():
        pass
