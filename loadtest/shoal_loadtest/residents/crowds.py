"""Crowds: hundredths of the seats. Locust lets them come and go, many logins at a time."""

from __future__ import annotations

import asyncio
from collections import deque

from shoal_loadtest.residents.limits import CROWDS, LOGINS_PER_BATCH
from shoal_loadtest.residents.scene import Scene, State, now_s
from shoal_loadtest.residents.visits import Visits


class Crowds:
    """Knows which crowds are wanted online, and does the work that follows from it."""

    def __init__(self, scene: Scene, visits: Visits) -> None:
        self._scene = scene
        self._visits = visits
        self._wanted = bytearray(CROWDS)
        self._work: deque[tuple[bool, int, int]] = deque()
        """The work to do, as (come, first seat, end): at most one per crowd and direction in a row."""
        self._wake = asyncio.Event()
        self._busy = 0
        self.moved = 0
        """Binds and unbinds of crowds, made in `moving_s` seconds."""
        self._moving_s = 0.0
        self._moving_since_s = 0.0

    @property
    def moving(self) -> bool:
        return bool(self._work or self._busy)

    @property
    def moving_s(self) -> float:
        """Returns the seconds in which crowds have been moving, in all."""
        return self._moving_s + (now_s() - self._moving_since_s if self.moving else 0.0)

    @property
    def wanted(self) -> int:
        """Returns the number of seats wanted online."""
        return sum(len(self._seats(crowd)) for crowd in range(CROWDS) if self._wanted[crowd])

    def is_wanted(self, seat: int) -> bool:
        # The inverse of `_seats`: the last crowd that begins at or before the seat.
        return bool(self._wanted[((seat + 1) * CROWDS - 1) // self._scene.town.seats])

    def come(self, crowd: int) -> None:
        self._change(crowd, True)

    def go(self, crowd: int) -> None:
        self._change(crowd, False)

    async def run(self) -> None:
        """Works for ever, as one of CROWD_WORKERS tasks."""
        while True:
            if not self._work:
                self._wake.clear()
                await self._wake.wait()
                continue
            come, first, end = self._work.popleft()
            until = min(end, first + LOGINS_PER_BATCH)
            if until < end:
                self._work.appendleft((come, until, end))
            self._busy += 1
            try:
                await self._batch(come, range(first, until))
            finally:
                self._busy -= 1
                if not self.moving:
                    self._moving_s += now_s() - self._moving_since_s

    async def _batch(self, come: bool, seats: range) -> None:
        states = self._scene.states
        state = State.AWAY if come else State.ONLINE
        fitting = [seat for seat in seats if states[seat] == state and self.is_wanted(seat) == come]
        if not fitting:
            return
        if come:
            await self._visits.log_in(fitting, now_s(), "came" if self._scene.samples.measuring else "found")
            self.moved += sum(len(self._scene.town.places_of(seat)) for seat in fitting)
        else:
            self.moved += sum(len(self._scene.town.places_of(seat)) for seat in fitting)
            await asyncio.gather(*(self._visits.log_out(seat, now_s()) for seat in fitting))

    def _change(self, crowd: int, come: bool) -> None:
        if not self.moving:
            self._moving_since_s = now_s()
        self._wanted[crowd] = come
        seats = self._seats(crowd)
        self._work.append((come, seats.start, seats.stop))
        self._wake.set()

    def _seats(self, crowd: int) -> range:
        seats = self._scene.town.seats
        return range(crowd * seats // CROWDS, (crowd + 1) * seats // CROWDS)
