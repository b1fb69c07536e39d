"""Makes residents come and go: declare, bind all their groups, consume; change groups; unbind all or drop the queue.

Belongs here: the calls of one visit, in their order, and what the checker is told about them. Not here: when they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import shoal
from shoal_loadtest.residents.core.town import NOBODY
from shoal_loadtest.residents.limits import DETACH_EVERY_S
from shoal_loadtest.residents.scene import Scene, State, now_s, until

Change = Literal["found", "came", "left", "moved"]
"""The change that a seat has just made. `found`: it came in the warm-up, as if online for a while already."""


class Visits:
    """Makes the calls of visits. `settled` is called with each seat that is online (after a login or a move) or away,
    and with its change."""

    def __init__(self, scene: Scene, settled: Callable[[int, Change], None]) -> None:
        self._scene = scene
        self._settled = settled
        self._left: list[tuple[int, bytes]] = []
        """The (resident, queue) pairs to detach."""

    async def log_in(self, seats: Sequence[int], due_s: float, change: Change = "came") -> None:
        """Logs other residents in at those of these seats that are free. A call that fails leaves them coming for
        good."""
        scene, town = self._scene, self._scene.town
        # Another task may have decided for a seat since this was started; the same holds below.
        seats = [seat for seat in seats if scene.states[seat] == State.AWAY]
        if not seats:
            return
        for seat in seats:
            scene.states[seat] = State.COMING
            town.sit(seat)
        await until(lambda: not any(town.resident(seat) in scene.detaching for seat in seats))
        queues = {seat: town.queue(seat) for seat in seats}
        try:
            with scene.samples.call("declare"):
                await scene.broker.declare(queues.values())
            await asyncio.gather(*(self._bind(seat, town.places_of(seat)) for seat in seats))
            if watched := [queue for seat, queue in queues.items() if scene.is_watched(seat)]:
                with scene.samples.call("attach"):
                    await scene.inbox.attach(*watched)
        except shoal.ShoalError:
            return
        for seat in seats:
            scene.samples.took("login", due_s)
            scene.samples.counts["logins"] += 1
            scene.states[seat] = State.ONLINE
            scene.online += 1
            self._settled(seat, change)

    async def log_out(self, seat: int, due_s: float) -> None:
        """Logs the seat's resident out: half of the residents unbind everything, the other half drop their queue."""
        scene, town = self._scene, self._scene.town
        if scene.states[seat] != State.ONLINE:
            return
        scene.states[seat] = State.LEAVING
        scene.online -= 1
        resident, queue, places = town.resident(seat), town.queue(seat), list(town.places_of(seat))
        try:
            if resident % 2:
                await self._drop(seat, queue, places)
            else:
                await self._unbind(seat, queue, places)
        except shoal.ShoalError:
            return
        for place in places:
            scene.windows.forget(place)
        if scene.is_watched(seat):
            scene.detaching.add(resident)
            self._left.append((resident, queue))
        town.stand_up(seat)
        scene.states[seat] = State.AWAY
        scene.samples.took("logout", due_s)
        scene.samples.counts["logouts"] += 1
        self._settled(seat, "left")

    async def move(self, seat: int, due_s: float) -> None:
        """Lets the seat's resident leave a group and join another."""
        scene, town = self._scene, self._scene.town
        place = town.pick_to_leave(seat) if scene.states[seat] == State.ONLINE else NOBODY
        if place == NOBODY:
            return
        scene.states[seat] = State.BUSY
        try:
            await self._unbind(seat, town.queue(seat), [place])
            scene.windows.forget(place)
            town.leave(seat, place)
            if (joined := town.join(seat)) != NOBODY:
                await self._bind(seat, [joined])
        except shoal.ShoalError:
            return
        scene.samples.took("move", due_s)
        scene.states[seat] = State.ONLINE
        self._settled(seat, "moved")

    async def detach(self) -> None:
        """Detaches the queues of residents that left, many at a time, for ever."""
        while True:
            await asyncio.sleep(DETACH_EVERY_S)
            left, self._left = self._left, []
            if left:
                try:
                    with self._scene.samples.call("detach"):
                        await self._scene.inbox.detach(*(queue for _, queue in left))
                except shoal.ShoalError:
                    continue
                residents = {resident for resident, _ in left}
                self._scene.detaching -= residents
                self._scene.dropping -= residents

    async def _bind(self, seat: int, places: Sequence[int]) -> None:
        scene = self._scene
        keys = scene.town.keys(places)
        watched = scene.is_watched(seat)
        for place in places if watched else ():
            scene.windows.open(place)
        with scene.samples.call("bind"):
            starts = await scene.broker.bind(scene.town.queue(seat), keys)
        for place, key in zip(places, keys, strict=True) if watched else ():
            scene.windows.opened(place, starts[key])
        scene.samples.counts["binds"] += len(places)

    async def _unbind(self, seat: int, queue: bytes, places: Sequence[int]) -> None:
        """Unbinds places, and waits until all messages from before have come or are lost."""
        scene = self._scene
        keys = scene.town.keys(places)
        watched = scene.is_watched(seat)
        with scene.samples.call("unbind"):
            ends = await scene.broker.unbind(queue, keys, discard=not watched)
        scene.samples.counts["unbinds"] += len(places)
        if not watched:
            return
        for place, key in zip(places, keys, strict=True):
            scene.windows.close(place, ends[key])
        lost_s = now_s() + scene.setting.lost_after_s
        await until(lambda: all(map(scene.windows.done, places)) or now_s() > lost_s)

    async def _drop(self, seat: int, queue: bytes, places: Sequence[int]) -> None:
        """Drops the queue. Messages sent just before may be dropped with it, or may still come."""
        scene = self._scene
        if scene.is_watched(seat):
            scene.dropping.add(scene.town.resident(seat))
            for place in places:
                scene.windows.forget(place)
        with scene.samples.call("drop"):
            await scene.broker.drop(queue)
        scene.samples.counts["unbinds"] += len(places)
