"""Provides the steps of watches, and checks what they tell: no change twice, and in the end the members or counts that
the model has, whatever was done meanwhile, and from whichever place a watch went on."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from shoal_contract.errors import NotOwner, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.watching.limits import CHANGED_KEY_BYTES, REMEMBER_MS, WATCH_BYTES
from shoal_slice_node.core.watching.watching import Watching
from tests.slice_node.told_watch import ToldWatch

if TYPE_CHECKING:
    from tests.fuzz.node import Node
    from tests.fuzz.world import World

WATCHES_MAX = 4
PLACES_KEPT = 6
TOLD_WITHIN_MS = 2_500
"""What happened is told by then, also where counts have a pause."""


class Place(NamedTuple):
    """Remembers where a watch stood, and the state that it had there."""

    what: Watched
    position: wire.WatchPosition
    members: dict[str, bool] | None
    counts: dict[str, tuple[int, int]]


class Watched(NamedTuple):
    """Says what is watched: a key, or a prefix of keys."""

    key: str | None
    prefix: str | None
    presence: bool


class Watches:
    """Keeps the watches of a run. `epoch`: of the node that has them; a crash ends all."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._epoch = node.epoch
        self.open: list[tuple[Watched, ToldWatch]] = []
        self.places: list[Place] = []

    def note_crash(self) -> None:
        """Forgets the watches of a node that crashed. Places stay."""
        if self._epoch != self._node.epoch:
            self._epoch = self._node.epoch
            self.open.clear()

    def begin(self, what: Watched, place: Place | None) -> None:
        """Begins a watch, from a place or anew."""
        try:
            after = None if place is None else place.position
            watch = ToldWatch(self._node, key=what.key, prefix=what.prefix, presence=what.presence, after=after)
        except NotOwner:
            assert what.key is not None and not self._node.state.owns(what.key.encode())
            return
        except ResourceExhausted:
            return
        if place is not None:
            watch.members = None if place.members is None else dict(place.members)
            watch.counts = dict(place.counts)
        self.open.append((what, watch))

    def read(self, what: Watched, watch: ToldWatch, responses: int) -> bool:
        """Takes some responses. Returns False if there is nothing to take, or the watch has ended."""
        for _ in range(responses):
            if (error := watch.watcher.ended_by) is not None:
                assert isinstance(error, NotOwner) and what.key is not None
                self.end(what, watch)
                return False
            if watch.take_one() is None:
                return False
            if watch.position.life:
                members = None if watch.members is None else dict(watch.members)
                place = Place(what, wire.WatchPosition.FromString(watch.position.SerializeToString()), members, {})
                self.places = [*self.places[-PLACES_KEPT:], place._replace(counts=dict(watch.counts))]
        return True

    def end(self, what: Watched, watch: ToldWatch) -> None:
        """Ends a watch."""
        self.open.remove((what, watch))
        watch.leave()

    def turns(self, turns: int) -> None:
        """Tells the time, and takes some turns."""
        watching = self._node.node.watching
        watching.tick(self._node.now_ms)
        for _ in range(turns):
            if watching.has_turns:
                watching.turn()

    def check_told(self) -> None:
        """Checks that each watch has what the model has, once all is told. Dispatch must be at rest."""
        node = self._node
        for _ in range(3):
            node.now_ms += TOLD_WITHIN_MS
            self.turns(1_000)
            for what, watch in list(self.open):
                while self.read(what, watch, 9):
                    pass
        for what, watch in self.open:
            where = f"the watch of {what}"
            if what.key is not None and watch.members is not None:
                found, told = self._members(what.key.encode()), dict(watch.members)
                if not what.presence:
                    found, told = dict.fromkeys(found, False), dict.fromkeys(told, False)
                assert told == found, f"{where}: {told}, not {found}"
            else:
                self._check_counts(what, watch, where)

    def _members(self, key: bytes) -> dict[str, bool]:
        lives = self._node.owed.lives.values()
        return {life.name.decode(): self._online(life.name) for life in lives if key in life.bound}

    def _online(self, name: bytes) -> bool:
        return any(name in client.session.by_queue for client in self._node.clients.values())

    def _check_counts(self, what: Watched, watch: ToldWatch, where: str) -> None:
        """Checks counts: they are those of receipts, which count dropped queues until these are reclaimed."""
        owed = self._node.owed
        keys = {key for life in owed.lives.values() for key in life.bound} | {key.encode() for key in watch.counts}
        for key in keys:
            if not (key == what.key.encode() if what.key is not None else key.startswith((what.prefix or "").encode())):
                continue
            if not owed.owns(key):
                continue
            members = self._members(key)
            bound, online = watch.counts.get(key.decode(), (0, 0))
            most = len(members) + owed.dropped.get(key, 0)
            assert len(members) <= bound <= most, f"{where}: {key!r} has {bound} members, not {len(members)}"
            if what.presence and bound:
                assert sum(members.values()) <= online <= bound, f"{where}: {online} of {bound} are online at {key!r}"

    def end_all(self) -> None:
        """Ends all watches, until nothing is remembered of them."""
        for what, watch in list(self.open):
            self.end(what, watch)
        self._node.now_ms += REMEMBER_MS
        self.turns(1)
        assert self._node.state.interest.members is None, "what is not watched is followed for ever"


def used_bytes(watching: Watching) -> int:
    """Counts the memory of watches, from scratch."""
    keys = [one for some in watching._keys.values() for one in some]
    prefixes = [one for some in watching._prefixes.values() for one in some]
    changed = sum(len(one._changed) for one in prefixes)
    return WATCH_BYTES * len(watching) + sum(one._held_bytes for one in keys) + CHANGED_KEY_BYTES * changed


# The steps.


def watch(world: World, random: Random) -> None:
    """Begins a watch, or goes on from where one stood."""
    from tests.fuzz.world import KEYS

    watches = world.watches
    watches.note_crash()
    if len(watches.open) >= WATCHES_MAX:
        watches.end(*random.choice(watches.open))
    if watches.places and random.random() < 0.4:
        place = random.choice(watches.places)
        world.say("watch on", place.what, place.position)
        watches.begin(place.what, place)
        return
    key = random.choice(KEYS).decode() if random.random() < 0.6 else None
    prefix = random.choice(("", "k", "k1", "{")) if key is None else None
    what = Watched(key, prefix, random.random() < 0.7)
    world.say("watch", what)
    watches.begin(what, None)


def read_watch(world: World, random: Random) -> None:
    """Lets a watch read a little."""
    world.watches.note_crash()
    if world.watches.open:
        what, found = random.choice(world.watches.open)
        world.watches.read(what, found, random.choice((1, 1, 3)))


def end_watch(world: World, random: Random) -> None:
    """Ends a watch."""
    world.watches.note_crash()
    if world.watches.open:
        world.watches.end(*random.choice(world.watches.open))


def watch_turns(world: World, random: Random) -> None:
    """Lets the node tell what is due, and look up members."""
    world.watches.turns(random.choice((0, 1, 3, 20)))
