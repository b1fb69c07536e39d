"""Follows the counts of all keys under one prefix, for all watches of it.

Nothing is kept for a key but that it changed: its counts are read when they are told, so that a storm of changes to a
key is told once.
"""

from __future__ import annotations

from itertools import takewhile

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.read.listing import list_keys
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.watching.counting import Counting
from shoal_slice_node.core.watching.limits import (
    CHANGED_KEY_BYTES,
    CHANGED_KEYS_MAX,
    KEYS_PER_PART_MAX,
    KEYS_PER_STEP_MAX,
    SNAPSHOT_PAUSE_MS,
)
from shoal_slice_node.core.watching.watch_room import WatchRoom
from shoal_slice_node.core.watching.watcher import Watcher


class WatchedPrefix:
    """Keeps what is told of one prefix. `number`: changes so far. `floor`: watches below it need a snapshot. `told`:
    changes above it wait for their time."""

    def __init__(self, watch: wire.WatchPosition, prefix: bytes, presence: bool, room: WatchRoom) -> None:
        """`watch`: the place before the first change. `room`: the memory that changed keys are counted in."""
        self.key = prefix
        self.presence = presence
        self.watchers: dict[int, Watcher] = {}
        self.next_ms = 0
        self.number = self.floor = self.told = 0
        self._watch = watch
        self._room = room
        self._keys_max = CHANGED_KEYS_MAX
        self._changed: dict[bytes, int] = {}
        """Key -> the number of its last change, ascending."""

    def limit_keys(self, keys_max: int) -> None:
        """Sets how many changed keys are remembered, at least one. Those that are too many go with the next changes."""
        self._keys_max = keys_max

    # What happens.

    def changed(self, key: bytes) -> None:
        """Notes that a key's counts are others now."""
        changed = self._changed
        self.number += 1
        if changed.pop(key, None) is None:
            self._room.hold(CHANGED_KEY_BYTES)
        changed[key] = self.number
        for _ in range(2):
            if len(changed) > self._keys_max or (changed and self._room.free_bytes < 0):
                self._room.let_go(CHANGED_KEY_BYTES)
                self.floor = changed.pop(next(iter(changed)))

    def anew(self) -> None:
        """Begins to be told anew: every watch needs a snapshot."""
        self.forget()
        self.number += 1
        self.floor = self.number

    def tell(self) -> None:
        """Takes in that it is time to tell what changed."""
        self.told = self.number

    def forget(self) -> None:
        """Forgets which keys changed."""
        self._room.let_go(CHANGED_KEY_BYTES * len(self._changed))
        self._changed = {}

    # What is told.

    def answer(self, watcher: Watcher, counting: Counting, now_ms: int) -> Work[wire.WatchResponse | None]:
        """Returns what the watch is told next; None: nothing now. A snapshot is read in pages of a list of keys. What
        changes meanwhile is told after it."""
        if watcher.after is None and watcher.sent < self.floor:
            if now_ms < watcher.snapshot_again_ms:
                return None
            watcher.after, watcher.parts_to, watcher.snapshot_began_ms = b"", self.number, now_ms
        if watcher.after is not None:
            return (yield from self._snapshot_part(watcher, counting, now_ms))
        if watcher.sent >= self.told and watcher.greeted:
            return None
        response = wire.WatchResponse()
        later = list(takewhile(lambda key: self._changed[key] > watcher.sent, reversed(self._changed)))
        keys = later[: -KEYS_PER_PART_MAX - 1 : -1]
        numbers = [self._changed[key] for key in keys]
        for place, key in enumerate(keys):
            if place and place % KEYS_PER_STEP_MAX == 0:
                yield
            counting.add(response, key, self.presence)
        watcher.sent = numbers[-1] if numbers else max(watcher.sent, self.told)
        response.position.CopyFrom(self._place(watcher.sent))
        return response

    def _snapshot_part(self, watcher: Watcher, counting: Counting, now_ms: int) -> Work[wire.WatchResponse]:
        assert watcher.after is not None
        listed, following = yield from list_keys(counting.state, self.key, watcher.after, KEYS_PER_PART_MAX)
        response = wire.WatchResponse(snapshot=True, more=bool(following))
        for place, (key, _) in enumerate(listed):
            if place % KEYS_PER_STEP_MAX == 0:
                yield
            counting.add(response, key, self.presence, empty=False)
        watcher.after = following or None
        if not following:
            watcher.sent = watcher.parts_to
            response.position.CopyFrom(self._place(watcher.sent))
            took_ms = now_ms - watcher.snapshot_began_ms
            watcher.snapshot_again_ms = now_ms + max(took_ms, SNAPSHOT_PAUSE_MS)
        return response

    def _place(self, number: int) -> wire.WatchPosition:
        return wire.WatchPosition(life=self._watch.life, watch=self._watch.watch, number=number)

    def goes_on(self, after: wire.WatchPosition) -> bool:
        """Returns whether a watch may go on from this place."""
        own = self._watch
        return after.life == own.life and after.watch == own.watch and self.floor <= after.number <= self.number
