"""Keeps what a fake slice tells watches: every change that ever was, so that a watch can go on from each place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from shoal_contract.wire import slice_pb2 as wire

State = dict[bytes, tuple[int, int]]
"""Queue -> (1, 1 if online) where members are watched, key -> (bound, consumed) where counts are."""


class FakeWatched:
    """Keeps what one watch was told. `changes`: what changed, in order: (name, before, now)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.changes: list[tuple[bytes, tuple[int, int], tuple[int, int]]] = []

    def take(self, state: State) -> None:
        """Notes what changed since the last state."""
        for name in sorted(self.state.keys() | state.keys()):
            before, now = self.state.get(name, (0, 0)), state.get(name, (0, 0))
            if before != now:
                self.changes.append((name, before, now))
        self.state = state


class FakeWatches:
    """Serves watches. `members_of`: key -> its members, each with whether it is online. `keys`: names of all keys.
    `forgets`: no place is gone on from, as after another leader came."""

    def __init__(self, members_of: Callable[[bytes], Mapping[bytes, bool]], keys: Callable[[], list[bytes]]) -> None:
        self.forgets = False
        self.opened: list[wire.WatchRequest] = []
        self._members_of = members_of
        self._keys = keys
        self._watched: dict[tuple[str, bytes, bool], FakeWatched] = {}
        self._changed = asyncio.Event()
        self._cuts = 0

    def tell(self) -> None:
        """Takes in what changed."""
        for (what, name, presence), watched in self._watched.items():
            watched.take(self._state(what, name, presence))
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def cut(self) -> None:
        """Ends all watches."""
        self._cuts += 1
        self.tell()

    def _state(self, what: str, name: bytes, presence: bool) -> State:
        if what == "members":
            return {queue: (1, int(online and presence)) for queue, online in self._members_of(name).items()}
        counts: State = {}
        for key in self._keys():
            members = self._members_of(key)
            if key.startswith(name) and members:
                counts[key] = len(members), sum(members.values()) * presence
        return counts

    async def stream(self, request: wire.WatchRequest) -> AsyncIterator[wire.WatchResponse]:
        """Serves one watch."""
        self.opened.append(request)
        what = request.WhichOneof("what") or ""
        asked = what, getattr(request, what), request.presence
        watched = self._watched.setdefault(asked, FakeWatched(self._state(*asked)))
        cuts, sent = self._cuts, request.after.number
        if not request.after.life or self.forgets:
            sent = len(watched.changes)
            items = [(name, (0, 0), now) for name, now in watched.state.items()]
            for begin in range(0, max(1, len(items)), 2):  # Parts of two, so that there are some.
                more = begin + 2 < len(items)
                yield _response(what, items[begin : begin + 2], None if more else sent, snapshot=True, more=more)
        while cuts == self._cuts:
            changed, begin, sent = self._changed, sent, len(watched.changes)
            yield _response(what, watched.changes[begin:], sent)  # More may change while it is taken.
            await changed.wait()


def _response(
    what: str,
    items: list[tuple[bytes, tuple[int, int], tuple[int, int]]],
    number: int | None,
    snapshot: bool = False,
    more: bool = False,
) -> wire.WatchResponse:
    response = wire.WatchResponse(snapshot=snapshot, more=more)
    if number is not None:
        response.position.CopyFrom(wire.WatchPosition(life=1, number=number))
    for name, before, now in items:
        if what == "members":
            response.queues.append(name)
            response.changes.append(_change(before, now))
        else:
            response.keys.append(name)
            response.bindings.append(now[0])
            response.online.append(now[1])
    return response


def _change(before: tuple[int, int], now: tuple[int, int]) -> wire.MemberChange.ValueType:
    if not now[0]:
        return wire.MEMBER_CHANGE_LEFT
    if not before[0]:
        return wire.MEMBER_CHANGE_JOINED_ONLINE if now[1] else wire.MEMBER_CHANGE_JOINED
    return wire.MEMBER_CHANGE_ONLINE if now[1] else wire.MEMBER_CHANGE_OFFLINE
