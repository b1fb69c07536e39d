"""Makes events of what slices tell watches: a consistent sequence, also over lost streams and other leaders.

A slice that lost a watch's place tells its state anew. Where the old state is known, the events are what differs: so
nothing is missed, and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from shoal.limits import COUNTED_KEYS_MAX, COUNTED_KEYS_OF_ALL_MAX, WATCHED_MEMBERS_MAX
from shoal.watch_events import CountEvent, Joined, KeyCount, Left, MemberCount, MemberEvent, Members, Offline, Online
from shoal_contract.errors import Malformed, exhausted
from shoal_contract.names import printable
from shoal_contract.wire import slice_pb2 as wire


def position_text(position: wire.WatchPosition, back: int = 0) -> str:
    """Returns a place as text; `back`: so many changes before it."""
    return f"{position.life}.{position.watch}.{position.number - back}"


def parse_position(text: str) -> wire.WatchPosition:
    """Returns the place that `position_text` wrote. Raises Malformed."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts):
        raise _no_position(text)
    life, watch, number = map(int, parts)
    if max(life, watch, number) >> 64:
        raise _no_position(text)
    return wire.WatchPosition(life=life, watch=watch, number=number)


def _no_position(text: str) -> Malformed:
    return Malformed(f"{printable(repr(text[:70]))} is no position of a watch", subject="after")


class WatchedMembers:
    """Keeps the members of one key, as far as they were told. `position`: the place behind the last event."""

    def __init__(self, position: str = "") -> None:
        self.position = position
        self._known: dict[bytes, bool] | None = None
        """Queue -> online; None: not known, as counts are told or the watch went on from a place."""
        self._count: tuple[int, int] | None = None
        self._parts: dict[bytes, bool] = {}
        """What came of a snapshot that is not whole yet."""

    def begin(self) -> None:
        """Notes that a new stream begins: the rest of a snapshot will not come."""
        self._parts = {}

    def take(self, response: wire.WatchResponse) -> list[MemberEvent]:
        """Returns the events of one response. Raises Malformed; ResourceExhausted if the members are too many to be
        kept."""
        _check_columns(response)
        if not response.snapshot and not response.keys:
            return list(self._changes(response))
        changes = zip(response.queues, response.changes, strict=True)
        self._parts.update((queue, change == wire.MEMBER_CHANGE_JOINED_ONLINE) for queue, change in changes)
        _check_members(self._parts)
        if response.more:
            return []
        found, self._parts = self._parts, {}
        before, self.position = self.position, position_text(response.position)
        if response.keys:
            return self._counted(response)
        known, self._known = self._known, found
        self._count = None
        if known is None:
            return [Members(dict(found), self.position)]
        # A watch that begins again between two of these events must not miss the rest: it gets a snapshot.
        events = list(_differences(known, found, before))
        return events[:-1] + list(_differences(known, found, self.position))[-1:]

    def _counted(self, response: wire.WatchResponse) -> list[MemberEvent]:
        count = response.bindings[0], response.online[0] if response.online else 0
        if count == self._count:
            return []
        self._count, self._known = count, None
        return [MemberCount(*count, self.position)]

    def _changes(self, response: wire.WatchResponse) -> Iterator[MemberEvent]:
        known = self._known
        for place, (change, queue) in enumerate(zip(response.changes, response.queues, strict=True), 1):
            position = self.position = position_text(response.position, len(response.queues) - place)
            if known is not None and change == wire.MEMBER_CHANGE_LEFT:
                known.pop(queue, None)
            elif known is not None:
                known[queue] = change in (wire.MEMBER_CHANGE_JOINED_ONLINE, wire.MEMBER_CHANGE_ONLINE)
                _check_members(known)
            if change in (wire.MEMBER_CHANGE_JOINED, wire.MEMBER_CHANGE_JOINED_ONLINE):
                yield Joined(queue, position, change == wire.MEMBER_CHANGE_JOINED_ONLINE)
            elif change == wire.MEMBER_CHANGE_LEFT:
                yield Left(queue, position)
            elif change == wire.MEMBER_CHANGE_ONLINE:
                yield Online(queue, position)
            elif change == wire.MEMBER_CHANGE_OFFLINE:
                yield Offline(queue, position)
        self.position = position_text(response.position)


def _check_columns(response: wire.WatchResponse) -> None:
    """Raises Malformed for columns that do not belong together."""
    keys, online = len(response.keys), len(response.online)
    if len(response.changes) != len(response.queues) or len(response.bindings) != keys or online not in (0, keys):
        raise Malformed(
            f"an answer to a watch cannot be read: {len(response.queues)} queues with {len(response.changes)} changes,"
            f" {keys} keys with {len(response.bindings)} and {online} counts",
            subject="watch",
        )


def _check_members(members: dict[bytes, bool]) -> None:
    if len(members) > WATCHED_MEMBERS_MAX:
        raise exhausted("members of one watched key, told by name", WATCHED_MEMBERS_MAX, len(members))


def _differences(known: dict[bytes, bool], found: dict[bytes, bool], position: str) -> Iterator[MemberEvent]:
    for queue in known:
        if queue not in found:
            yield Left(queue, position)
    for queue, online in found.items():
        if queue not in known:
            yield Joined(queue, position, online)
        elif known[queue] != online:
            yield Online(queue, position) if online else Offline(queue, position)


class CountedKeys:
    """Counts the keys whose counts are kept, over all watches of a client."""

    def __init__(self) -> None:
        self.keys = 0


class WatchedCounts:
    """Keeps the counts of keys, as every slice told them. `counted`: the keys that all watches of a client keep."""

    def __init__(self, counted: CountedKeys | None = None) -> None:
        self._counted = counted or CountedKeys()
        self._kept = 0
        """This watch's part of `counted`."""
        self._known: dict[str, dict[bytes, tuple[int, int]]] = {}
        """Slice -> key -> bound queues, consumed queues. Keys without bound queues are not kept."""
        self._snapshots: dict[str, set[bytes]] = {}
        """Slice -> the keys with bound queues that came of a snapshot that is not whole yet; `_known` has them too."""
        self.complete: set[str] = set()
        """The slices that have told their whole state."""

    def begin(self, slice_name: str) -> None:
        """Notes that a new stream to the slice begins: the rest of a snapshot will not come."""
        self._snapshots.pop(slice_name, None)

    def take(self, slice_name: str, response: wire.WatchResponse) -> list[CountEvent]:
        """Returns the events of one response. Raises Malformed; ResourceExhausted if the keys are too many to be
        kept."""
        _check_columns(response)
        known = self._known.setdefault(slice_name, {})
        events: list[CountEvent] = []
        online = response.online or [0] * len(response.keys)
        if response.snapshot:
            self._snapshots.setdefault(slice_name, set())
        snapshot = self._snapshots.get(slice_name, set())
        for key, queues, consumed in zip(response.keys, response.bindings, online, strict=True):
            if known.get(key, (0, 0)) != (queues, consumed):
                known[key] = queues, consumed
                events.append(KeyCount(key, queues, consumed))
            if queues:
                snapshot.add(key)
            else:
                known.pop(key, None)
                snapshot.discard(key)
        if response.snapshot and not response.more:
            self.complete.add(slice_name)
            for key in known.keys() - self._snapshots.pop(slice_name):
                del known[key]
                if not any(key in keys for keys in self._known.values()):  # Else another slice has the key now.
                    events.append(KeyCount(key, 0, 0))
        count = sum(map(len, self._known.values()))
        self._keep(count)
        if count > COUNTED_KEYS_MAX:
            raise exhausted("keys of one watch of counts; take a longer prefix", COUNTED_KEYS_MAX, count)
        if self._counted.keys > COUNTED_KEYS_OF_ALL_MAX:
            what = "keys of all watches of counts of this client; take longer prefixes, or end a watch"
            raise exhausted(what, COUNTED_KEYS_OF_ALL_MAX, self._counted.keys)
        return events

    def end(self) -> None:
        """Forgets all counts: the watch has ended."""
        self._known.clear()
        self._snapshots.clear()
        self._keep(0)

    def _keep(self, count: int) -> None:
        self._counted.keys += count - self._kept
        self._kept = count
