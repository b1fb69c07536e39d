"""Follows the members of one key, for all watches of it.

A key of up to MEMBERS_TOLD_MAX members is followed member by member: they are known, and so are the last changes. Of a
larger key only counts are told. `loaded` is False while members are being looked up: every member up to the load's
position is known then, and some of those above it, so that events need no care.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.queue_row import name_of
from shoal_slice_node.core.watching.counting import Counting
from shoal_slice_node.core.watching.limits import (
    CHANGE_BYTES,
    CHANGES_REMEMBERED_MAX,
    MEMBER_BYTES,
    MEMBERS_PER_STEP_MAX,
    MEMBERS_TOLD_AGAIN,
    MEMBERS_TOLD_MAX,
    PART_NAMES_BYTES_MAX,
)
from shoal_slice_node.core.watching.watch_room import WatchRoom
from shoal_slice_node.core.watching.watcher import Watcher

Known = dict[bytes, dict["WatchedKey", None]]
"""Queue id -> the watched keys that know it as a member, in the order in which they came to know it."""
IsOnline = Callable[[bytes], bool]


class WatchedKey:
    """Keeps what is told of one key. `number`: changes so far. `floor`: watches below it need a snapshot."""

    def __init__(self, watch: wire.WatchPosition, key: bytes, presence: bool, known: Known, room: WatchRoom) -> None:
        """`watch`: the place before the first change. `known`: where members are noted. `room`: the memory that they
        are counted in."""
        self.key = key
        self.presence = presence
        self.watchers: dict[int, Watcher] = {}
        self.next_ms = 0
        self.number = self.floor = 0
        self.large = False
        self.loaded = False
        self._watch = watch
        self._known = known
        self._room = room
        self._held_bytes = 0
        self._after = bytes(ID_BYTES)
        self._names: dict[bytes, bytes] = {}
        """Queue id -> name, of the members. One that was dropped and declared anew may be here twice for a while."""
        self._told: dict[bytes, bytes] = {}
        """Name -> the id of the queue that watches are told of."""
        self._others: Counter[bytes] = Counter()
        """Name -> how many other queues of that name are here."""
        self._online: set[bytes] = set()
        """Ids of the members that a session has attached; stays empty without `presence`."""
        self._recent: deque[tuple[wire.MemberChange.ValueType, bytes]] = deque()
        """The changes floor < n <= number, in order."""
        self._snapshot: list[wire.WatchResponse] = []
        """The parts of the snapshot at `number`, while some watch is told them."""
        self._told_parts: set[int] = set()
        """The numbers of the watches that have parts of a snapshot left."""

    @property
    def members_known(self) -> int:
        return len(self._names)

    # What happens.

    def joined(self, queue_id: bytes, name: bytes, online: bool) -> None:
        if self.large or queue_id in self._names:
            return
        other = self._told.get(name)
        self._add(queue_id, name, online)
        if self.loaded and other is None:
            joined = wire.MEMBER_CHANGE_JOINED_ONLINE if queue_id in self._online else wire.MEMBER_CHANGE_JOINED
            self._changed(joined, name)
        elif self.loaded and other is not None:
            self._tell_instead(name, other in self._online, queue_id)

    def left(self, queue_id: bytes) -> bool:
        """Notes that a queue is no member now. Returns whether it was one."""
        name = self._names.pop(queue_id, None)
        if name is None:
            return False
        was_online = queue_id in self._online
        self._online.discard(queue_id)
        self._forget(queue_id)
        self._let_go(MEMBER_BYTES)
        if self._others[name]:
            self._others[name] -= 1
            if self._told[name] == queue_id:
                self._told[name] = other = next(iter([one for one, of in self._names.items() if of == name]))
                self._tell_instead(name, was_online, other)
            return True
        del self._others[name], self._told[name]
        if self.loaded:
            self._changed(wire.MEMBER_CHANGE_LEFT, name)
        return True

    def _tell_instead(self, name: bytes, was_online: bool, queue_id: bytes) -> None:
        """Tells what is other now that another queue of a name is the member."""
        is_online = queue_id in self._online
        if self.loaded and is_online != was_online:
            self._changed(wire.MEMBER_CHANGE_ONLINE if is_online else wire.MEMBER_CHANGE_OFFLINE, name)

    def attached(self, queue_id: bytes, now: bool) -> bool:
        """Notes that a member is attached by a session now, or by none any more. Returns whether that is new."""
        if not self.presence or (queue_id in self._online) == now or queue_id not in self._names:
            return False
        if now:
            self._online.add(queue_id)
        else:
            self._online.remove(queue_id)
        name = self._names[queue_id]
        if self.loaded and self._told[name] == queue_id:
            self._changed(wire.MEMBER_CHANGE_ONLINE if now else wire.MEMBER_CHANGE_OFFLINE, name)
        return True

    def _add(self, queue_id: bytes, name: bytes, online: bool) -> None:
        self._names[queue_id] = name
        if name in self._told:
            self._others[name] += 1
        self._told[name] = queue_id
        self._known.setdefault(queue_id, {})[self] = None
        self._hold(MEMBER_BYTES)
        if online and self.presence:
            self._online.add(queue_id)
        if len(self._names) > MEMBERS_TOLD_MAX or self._room.free_bytes < 0:
            self._grow()

    def _changed(self, change: wire.MemberChange.ValueType, name: bytes) -> None:
        if self.large:
            return
        self.number += 1
        self._snapshot = []
        self._recent.append((change, name))
        if len(self._recent) > CHANGES_REMEMBERED_MAX:
            self._recent.popleft()
            self.floor += 1
        else:
            self._hold(CHANGE_BYTES)

    # Small and large.

    def load_step(self, counting: Counting, is_online: IsOnline) -> None:
        """Looks up some of the members. Call it again until `loaded`."""
        tables = counting.state.tables
        row = tables.key.get(counting.state.unchecked_name(self.key))
        members, to = ([], b"") if row is None else tables.binding.members(row[ID], self._after, MEMBERS_PER_STEP_MAX)
        if row is not None and tables.binding.count(row[ID]) > MEMBERS_TOLD_MAX:
            self._grow()
            return
        for queue_id in members:
            queue_row = tables.queue.get(queue_id)
            if queue_row is not None and queue_id not in self._names:  # Else it was dropped, and is not reclaimed yet.
                self._add(queue_id, name_of(queue_row), is_online(queue_id))
                if self.large:
                    return
        if to:
            self._after = to
        else:
            self._anew()
            self.loaded = True

    def _anew(self) -> None:
        """Begins to be told anew: every watch needs a snapshot."""
        self.number += 1
        self.floor = self.number
        self._let_go(CHANGE_BYTES * len(self._recent))
        self._recent.clear()
        self._snapshot = []

    def _grow(self) -> None:
        """Forgets the members: from here on counts are told."""
        self.forget()
        self.large = self.loaded = True
        self._anew()

    def look_up_anew(self) -> None:
        """Begins to look up the members. Each watch gets a snapshot."""
        self.forget()
        self.large = self.loaded = False
        self._after = bytes(ID_BYTES)

    def tell(self, counting: Counting) -> bool:
        """Takes in that it is time to tell what changed. Returns False if the members must be looked up first."""
        if self.large and counting.of(self.key)[0] <= MEMBERS_TOLD_AGAIN and self._room.free_bytes > 0:
            self.look_up_anew()
        elif self.large:
            self.number += 1
        return self.loaded

    def forget(self) -> None:
        """Forgets all members."""
        for queue_id in self._names:
            self._forget(queue_id)
        self._names, self._told = {}, {}
        self._others.clear()
        self._online = set()
        self._recent.clear()
        self._snapshot = []
        self._let_go(self._held_bytes)

    def _forget(self, queue_id: bytes) -> None:
        keys = self._known[queue_id]
        del keys[self]
        if not keys:
            del self._known[queue_id]

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._room.hold(size_bytes)

    def _let_go(self, size_bytes: int) -> None:
        self._held_bytes -= size_bytes
        self._room.let_go(size_bytes)

    # What is told.

    def answer(self, watcher: Watcher, counting: Counting) -> wire.WatchResponse | None:
        """Returns what the watch is told next; None: nothing now."""
        if watcher.parts:
            return self._part(watcher)
        if not self.loaded or (watcher.sent == self.number and watcher.greeted):
            return None
        if self.large:
            response = wire.WatchResponse(snapshot=watcher.sent < self.floor, position=self._place(self.number))
            counting.add(response, self.key, self.presence)
            watcher.sent = self.number
            return response
        if watcher.sent < self.floor:
            watcher.parts.extend(self._parts())
            watcher.parts_to = self.number
            self._told_parts.add(watcher.number)
            return self._part(watcher)
        response = wire.WatchResponse(position=self._place(self.number))
        for change, name in islice(self._recent, watcher.sent - self.floor, None):
            response.changes.append(change)
            response.queues.append(name)
        watcher.sent = self.number
        return response

    def _part(self, watcher: Watcher) -> wire.WatchResponse:
        part = watcher.parts.popleft()
        if not watcher.parts:
            watcher.sent = watcher.parts_to
            self.forget_parts(watcher)
        return part

    def forget_parts(self, watcher: Watcher) -> None:
        """Notes that a watch has no parts of a snapshot left, or has ended. Forgets the snapshot if no other one has
        some: it is made anew for the next one, in less than a millisecond."""
        self._told_parts.discard(watcher.number)
        if not self._told_parts:
            self._snapshot = []

    def _parts(self) -> list[wire.WatchResponse]:
        """Returns the snapshot in parts. Watches share them, and must not change them."""
        if self._snapshot:
            return self._snapshot
        parts = [wire.WatchResponse(snapshot=True)]
        size_bytes = 0
        for queue_id, name in self._names.items():
            if size_bytes > PART_NAMES_BYTES_MAX:
                parts[-1].more = True
                parts.append(wire.WatchResponse(snapshot=True))
                size_bytes = 0
            if self._told[name] != queue_id:
                continue
            online = queue_id in self._online
            parts[-1].changes.append(wire.MEMBER_CHANGE_JOINED_ONLINE if online else wire.MEMBER_CHANGE_JOINED)
            parts[-1].queues.append(name)
            size_bytes += len(name)
        parts[-1].position.CopyFrom(self._place(self.number))
        self._snapshot = parts
        return parts

    def _place(self, number: int) -> wire.WatchPosition:
        return wire.WatchPosition(life=self._watch.life, watch=self._watch.watch, number=number)

    def goes_on(self, after: wire.WatchPosition) -> bool:
        """Returns whether a watch may go on from this place."""
        own = self._watch
        here = after.life == own.life and after.watch == own.watch
        return here and self.loaded and self.floor <= after.number <= self.number
