"""Keeps the watches of a slice, on its leader: what is watched, by whom, and when it is told.

Belongs here: the registers, the bounds, the time of telling. Not here: what is told of a key (watched_key) or of a
prefix (watched_prefix), and how it travels (adapters/watch_stream).

All of it is the memory of one leader. A place in it (WatchPosition) counts the changes that were told, records and
presence alike; no record holds presence, so no LSN could. A watch that comes to another leader gets a snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import TypeAlias, TypeVar

from shoal_contract.errors import InvalidName, Malformed, exhausted
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects, Joined, Left
from shoal_slice_node.core.apply.interest import WatchedMembers
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.watching.counting import Counting
from shoal_slice_node.core.watching.limits import (
    CHANGED_KEY_BYTES,
    CHANGED_KEYS_MAX,
    CHANGED_KEYS_PART,
    COUNTS_EVERY_MS,
    CROWD,
    FORGOTTEN_PER_TICK_MAX,
    LENGTHS_AT_ONCE_MAX,
    PREFIXES_WATCHED_MAX,
    REMEMBER_MS,
    REMEMBERED_MAX,
    WATCH_BYTES,
    WATCHED_PER_TICK_MAX,
    WATCHES_MAX,
)
from shoal_slice_node.core.watching.member_line import MemberLine
from shoal_slice_node.core.watching.watch_counts import WatchCounts
from shoal_slice_node.core.watching.watch_room import WatchRoom
from shoal_slice_node.core.watching.watched_key import Known, WatchedKey
from shoal_slice_node.core.watching.watched_prefix import WatchedPrefix
from shoal_slice_node.core.watching.watcher import NOTHING, Watcher

Watched: TypeAlias = WatchedKey | WatchedPrefix
Kind = TypeVar("Kind", WatchedKey, WatchedPrefix)


class Watching:
    """Keeps the watches. `dirty`: those that may have something to be told, by number; the driver of the node empties
    it. `loading`: keys whose members are being looked up, in turn."""

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self.dirty: dict[int, Watcher] = {}
        self.loading: OrderedDict[WatchedKey, None] = OrderedDict()
        self._state = state
        self._interest = state.interest
        """This leader's own: the next one has another."""
        self._dispatcher = dispatcher
        self._room = WatchRoom(dispatcher.shares.attached)
        self._counting = Counting(state, dispatcher.in_memory)
        self._life = 0
        self._watches = 0
        self._with_presence = 0
        """The number of keys and prefixes that are followed with presence."""
        self._numbers = 0
        self._watchers: dict[int, Watched] = {}
        """The watches, by number, with what they watch."""
        self._counts = WatchCounts()
        self._known: Known = {}
        self._keys: dict[bytes, list[WatchedKey]] = {}
        """Name -> up to two watched keys: with presence, and without. The same for prefixes."""
        self._prefixes: dict[bytes, list[WatchedPrefix]] = {}
        self._due: dict[Watched, None] = {}
        """What has changes to tell, when its time has come."""
        self._idle: OrderedDict[Watched, int] = OrderedDict()
        """What no watch is left of, with the time (ms) until which it is remembered; the oldest first."""
        self._stale: OrderedDict[WatchedKey, None] = OrderedDict()
        """Keys whose members must be looked up anew: not all that happened to them was taken in."""
        self._line = MemberLine(self._known, self._keys, self._prefixes, self)
        self._members = WatchedMembers(self._keys, self._prefixes, self._line)
        self._lengths: tuple[int, ...] = ()
        """Those of watched prefixes, the longest first."""
        self._interest.members = None

    def begin(self, life: int) -> None:
        """Sets the number by which places of this leader's time are known. It must differ from that of all others."""
        self._life = life

    def __len__(self) -> int:
        return len(self._watchers)

    # Watches.

    def watch(self, request: wire.WatchRequest, connection: Hashable) -> Watcher:
        """Begins a watch. Must not be called while a record is applied in part. Raises Malformed, InvalidName,
        NotOwner, ResourceExhausted."""
        what = request.WhichOneof("what")
        if what == "members":
            self._state.full_name(request.members)
        elif what is None:
            raise Malformed("a watch needs `members` (a key) or `counts` (a prefix of keys)", subject="what")
        elif len(request.counts) > NAME_BYTES_MAX:
            size, limit = len(request.counts), NAME_BYTES_MAX
            problem = f"prefix {show(request.counts[:20])}... is {size} bytes; the limit is {limit}"
            raise InvalidName(problem, subject="prefix", limit=limit, value=size)
        self._check_room(connection, request.counts if what == "counts" else None)
        if what == "members":
            watched: Watched = self._watched_key(request.members, request.presence)
        else:
            watched = self._watched_prefix(request.counts, request.presence)
        sent = request.after.number if watched.goes_on(request.after) else NOTHING
        self._numbers += 1
        watcher = Watcher(self._numbers, connection, sent)
        watched.watchers[watcher.number] = watcher
        self._watchers[watcher.number] = watched
        self._counts.begin(connection, watched.key if isinstance(watched, WatchedPrefix) else None)
        self._idle.pop(watched, None)
        self._room.hold(WATCH_BYTES)
        return watcher

    def _check_room(self, connection: Hashable, prefix: bytes | None) -> None:
        if len(self._watchers) >= WATCHES_MAX:
            raise exhausted("watches of this slice", WATCHES_MAX, len(self._watchers) + 1)
        self._counts.check(connection, prefix)
        room, share = self._room, self._room.share
        if share.free_bytes < WATCH_BYTES:
            self._dispatcher.registry.range_room.note_refused(WATCH_BYTES)
            used_bytes = share.used_bytes + WATCH_BYTES
            raise exhausted("memory of attached queues and watches, bytes", share.limit_bytes, used_bytes)
        if room.free_bytes < WATCH_BYTES:
            raise exhausted("memory of watches, bytes", room.limit_bytes, room.used_bytes + WATCH_BYTES)

    def _watched_key(self, key: bytes, presence: bool) -> WatchedKey:
        for known in self._keys.get(key, ()):
            if known.presence == presence:
                return known
        watched = WatchedKey(self._first_place(), key, presence, self._known, self._room)
        self._keys.setdefault(key, []).append(watched)
        self.loading[watched] = None
        self._note_watched(presence)
        return watched

    def _watched_prefix(self, prefix: bytes, presence: bool) -> WatchedPrefix:
        for known in self._prefixes.get(prefix, ()):
            if known.presence == presence:
                return known
        if prefix not in self._prefixes and len(self._prefixes) >= PREFIXES_WATCHED_MAX:
            self._forget_idle_prefix()
        watched = WatchedPrefix(self._first_place(), prefix, presence, self._room)
        self._prefixes.setdefault(prefix, []).append(watched)
        self._note_watched(presence)
        return watched

    def _first_place(self) -> wire.WatchPosition:
        self._watches += 1
        return wire.WatchPosition(life=self._life, watch=self._watches)

    def end_watch(self, watcher: Watcher, now_ms: int) -> None:
        """Ends a watch. What it watched is remembered for a while."""
        watched = self._watchers.pop(watcher.number)
        self.dirty.pop(watcher.number, None)
        self._room.let_go(WATCH_BYTES)
        self._counts.end(watcher.connection, watched.key if isinstance(watched, WatchedPrefix) else None)
        del watched.watchers[watcher.number]
        if isinstance(watched, WatchedKey):
            watched.forget_parts(watcher)
        if not watched.watchers and self._is_registered(watched):
            self._idle[watched] = now_ms + REMEMBER_MS
            if len(self._idle) > REMEMBERED_MAX:
                self._forget(next(iter(self._idle)))

    def _is_registered(self, watched: Watched) -> bool:
        register = self._keys if isinstance(watched, WatchedKey) else self._prefixes
        return any(one is watched for one in register.get(watched.key, ()))

    def _forget(self, watched: Watched) -> None:
        """Follows a key or prefix no longer."""
        watched.forget()
        self._idle.pop(watched, None)
        self._due.pop(watched, None)
        if isinstance(watched, WatchedKey):
            self.loading.pop(watched, None)
            self._stale.pop(watched, None)
            _remove(self._keys, watched.key, watched)
        else:
            _remove(self._prefixes, watched.key, watched)
        self._with_presence -= watched.presence
        self._note_watched()

    def _note_watched(self, more_presence: bool = False) -> None:
        """Says to the core and to dispatch what they have to tell. `more_presence`: a new key or prefix is followed
        with presence."""
        self._with_presence += more_presence
        self._members.lengths = tuple(sorted(set(map(len, self._prefixes))))
        self._lengths = self._members.lengths[::-1]
        prefixes = [one for some in self._prefixes.values() for one in some]
        part_bytes = self._room.share.limit_bytes // CHANGED_KEYS_PART // max(1, len(prefixes))
        for one in prefixes:
            one.limit_keys(max(1, min(CHANGED_KEYS_MAX, part_bytes // CHANGED_KEY_BYTES)))
        self._interest.members = self._members if self._keys or self._prefixes else None
        self._dispatcher.tell_presence(self if self._with_presence else None)

    def _all(self) -> Iterator[Watched]:
        for keys in self._keys.values():
            yield from keys
        for prefixes in self._prefixes.values():
            yield from prefixes

    # What happens.

    def applied(self, effects: Effects) -> None:
        """Takes in what a record did, after dispatch did."""
        if effects.ownership:
            self._check_owned()
        if effects.members:
            self._line.happened(effects.members)

    def take_in(self, event: Joined | Left) -> int:
        """See Followed."""
        heard = self._keys.get(event.key, ())
        for watched in heard:
            if isinstance(event, Joined):
                watched.joined(event.queue_id, event.queue, self.is_online(event.queue_id))
            else:
                watched.left(event.queue_id)
            self._due[watched] = None
        return len(heard)

    def look_up_anew(self) -> None:
        """See Followed. It is done in turns."""
        for keys in self._keys.values():
            self._stale.update(dict.fromkeys(keys))

    def note_due(self, watched: WatchedKey) -> None:
        """See Followed."""
        self._due[watched] = None

    def attached(self, queue_id: bytes) -> None:
        """Hears from dispatch that a session attached a queue, or that no session has it attached any more."""
        self._line.attached(queue_id)

    def in_memory_changed(self, key: bytes) -> None:
        """Hears from dispatch that it knows other queues of a key than before."""
        for watched in self._keys.get(key, ()):
            if watched.presence and watched.large:
                self._due[watched] = None
        if len(self._members.lengths) > LENGTHS_AT_ONCE_MAX:
            self._line.in_memory_changed(key)
        elif self._prefixes:
            self.count(key, bound=False)

    def count(self, key: bytes, bound: bool) -> int:
        """See Followed."""
        heard = 0
        for length in self._members.lengths:
            for watched in self._prefixes.get(key[:length], ()):
                if bound or watched.presence:
                    watched.changed(key)
                    self._due[watched] = None
                    heard += 1
        return heard

    def longest_prefix(self, key: bytes) -> bytes | None:
        """See Followed."""
        for length in self._lengths:
            if key[:length] in self._prefixes:
                return key[:length]
        return None

    def count_anew(self, prefix: bytes, bound: bool) -> None:
        """See Followed: watches get a snapshot."""
        for length in self._members.lengths:
            for watched in self._prefixes.get(prefix[:length], ()) if length <= len(prefix) else ():
                if bound or watched.presence:
                    watched.anew()
                    self._due[watched] = None

    def is_online(self, queue_id: bytes) -> bool:
        """See Followed."""
        feed = self._dispatcher.feeds.get(queue_id)
        return feed is not None and bool(feed.attachments)

    def _check_owned(self) -> None:
        """Ends the watches of keys that this slice does not own any more. Prefixes are told anew."""
        for watched in list(self._all()):
            if isinstance(watched, WatchedPrefix):
                watched.anew()
                self._due[watched] = None
            elif self._state.owns(watched.key):
                continue
            else:
                for watcher in watched.watchers.values():
                    watcher.ended_by = self._state.not_owner(watched.key)
                    self.dirty[watcher.number] = watcher
                self._forget(watched)

    def _forget_idle_prefix(self) -> None:
        for one in self._idle:
            if isinstance(one, WatchedPrefix):
                self._forget(one)
                return
        raise exhausted("prefixes watched on this slice", PREFIXES_WATCHED_MAX, len(self._prefixes) + 1)

    # Time and turns.

    def tick(self, now_ms: int) -> None:
        """Tells what is due, and forgets what has not been watched for a while."""
        for watched in self._due_now(now_ms):
            del self._due[watched]
            if isinstance(watched, WatchedPrefix):
                watched.tell()
            elif not watched.tell(self._counting):
                self.loading[watched] = None
                continue
            counts = isinstance(watched, WatchedPrefix) or watched.large or len(watched.watchers) > CROWD
            watched.next_ms = now_ms + COUNTS_EVERY_MS if counts else 0
            self.dirty.update(watched.watchers)
        left = FORGOTTEN_PER_TICK_MAX
        while self._idle and left > 0:
            watched, until_ms = next(iter(self._idle.items()))
            if until_ms > now_ms:
                return
            left -= 1 + (watched.members_known if isinstance(watched, WatchedKey) else 0)
            self._forget(watched)

    def _due_now(self, now_ms: int) -> list[Watched]:
        due: list[Watched] = []
        for watched in self._due:
            if watched.next_ms <= now_ms:
                due.append(watched)
                if len(due) == WATCHED_PER_TICK_MAX:
                    break
        return due

    @property
    def has_turns(self) -> bool:
        """Returns whether `turn` has something to do."""
        return bool(self.loading or self._line or self._stale)

    def turn(self) -> None:
        """Takes in some changes that wait, and looks up some members."""
        if self._line:
            self._line.step()
        if self._stale:
            watched, _ = self._stale.popitem(last=False)
            watched.look_up_anew()
            self.loading[watched] = None
        if self.loading:
            self.load_turn()

    def load_turn(self) -> None:
        """Looks up some members of the key that waited longest. Must not be called while `loading` is empty."""
        watched, _ = self.loading.popitem(last=False)
        watched.load_step(self._counting, self.is_online)
        if watched.loaded:
            self.dirty.update(watched.watchers)
        else:
            self.loading[watched] = None

    def lists_keys(self, watcher: Watcher) -> bool:
        """Returns whether what the watch is told next is a page of a snapshot of counts, which takes memory."""
        watched = self._watchers[watcher.number]
        return isinstance(watched, WatchedPrefix) and (watcher.after is not None or watcher.sent < watched.floor)

    def answer(self, watcher: Watcher, now_ms: int, lists: bool = True) -> Work[wire.WatchResponse | None]:
        """Returns what the watch is told next; None: nothing, until it is `dirty`. Without `lists` it is told no page
        of a snapshot of counts, and is `dirty` at once. Raises what the watch ended by."""
        if watcher.ended_by is not None:
            raise watcher.ended_by
        if not lists and self.lists_keys(watcher):
            self.dirty[watcher.number] = watcher
            return None
        watched = self._watchers[watcher.number]
        if isinstance(watched, WatchedKey):
            response = watched.answer(watcher, self._counting)
        else:
            response = yield from watched.answer(watcher, self._counting, now_ms)
            if response is None and watcher.sent < watched.floor:
                self._due[watched] = None  # It must wait before its next snapshot.
        if response is not None:
            watcher.greeted = True
        return response


def _remove(
    register: dict[bytes, list[WatchedKey]] | dict[bytes, list[WatchedPrefix]], key: bytes, one: Watched
) -> None:
    left = register[key]
    left.remove(one)  # type: ignore[arg-type]  # it is in the register of its kind
    if not left:
        del register[key]
