"""Places that many connections want: so many at a time, connections in turn, and no connection may have all of them.

Where the line is full, the connection with most in it gives way, not the newcomer. Who has a place has less time where
others wait for it; a service may then blame its connection, which comes after all others for a while. Not here: what a
place is for (each service).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import BLAME_S, BLAMED_MAX


@dataclass(frozen=True, slots=True)
class PlacesLimits:
    """`each`: of one connection."""

    places_max: int
    places_each_max: int
    waiting_max: int
    waiting_each_max: int

    def __post_init__(self) -> None:
        assert self.places_each_max < self.places_max
        assert self.waiting_each_max < self.waiting_max


class Blamed:
    """Connections that held up others: they come last, for BLAME_S; so many are remembered, the latest."""

    def __init__(self) -> None:
        self._until_s: OrderedDict[str, float] = OrderedDict()
        """In seconds of time.monotonic."""

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, str) and self._until_s.get(peer, 0) > time.monotonic()

    def add(self, peer: str) -> None:
        self._until_s[peer] = time.monotonic() + BLAME_S
        self._until_s.move_to_end(peer)
        if len(self._until_s) > BLAMED_MAX:
            self._until_s.popitem(last=False)


class Places:
    """`what`: the subject of refusals. A connection is named as gRPC names its client (`context.peer()`)."""

    def __init__(self, what: str, limits: PlacesLimits) -> None:
        self.what = what
        self._limits = limits
        self._free = limits.places_max
        self._held: Counter[str] = Counter()
        """By connection; only those that have some."""
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Those that wait, by connection: the first line has the next turn. None is empty."""
        self._blamed = Blamed()
        self._hurried_at: dict[asyncio.Timeout, float] = {}
        """When the patience with each that has a place ends, if others wait."""
        self.waiting = 0

    @property
    def crowded(self) -> bool:
        """Whether a connection waits for places that others have."""
        return not self._free and self._next() is not None

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Waits for a place. Raises ResourceExhausted where too many wait, also while it waits."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._free or self._held[peer] >= self._limits.places_each_max:
            self._make_room(peer)
        self._lines.setdefault(peer, deque()).append(turn)
        self.waiting += 1
        self._give()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._take_back(peer)
            else:
                self._leave_line(peer, turn)

    @asynccontextmanager
    async def patience(self, most_s: float, crowded_s: float) -> AsyncIterator[None]:
        """Bounds what one that has a place waits for. Raises TimeoutError after `most_s`, or where others wait after
        `crowded_s`: see `blame`."""
        async with asyncio.timeout(most_s) as patience:
            self._hurried_at[patience] = asyncio.get_running_loop().time() + crowded_s
            self._hurry()
            try:
                yield
            finally:
                del self._hurried_at[patience]

    def blame(self, peer: str) -> None:
        """It let its time pass."""
        self._blamed.add(peer)

    def _hurry(self) -> None:
        if not self.crowded:
            return
        now = asyncio.get_running_loop().time()
        for patience, at in self._hurried_at.items():
            due = patience.when()
            if not patience.expired() and due is not None and due > at:
                patience.reschedule(max(at, now))

    def _make_room(self, peer: str) -> None:
        """In the line, for one more of this connection."""
        own = len(self._lines.get(peer, ()))
        if own >= self._limits.waiting_each_max:
            raise self._exhausted("of your connection", self._limits.waiting_each_max)
        if self.waiting < self._limits.waiting_max:
            return
        error = self._exhausted("in all", self._limits.waiting_max)
        most = max(self._lines, key=lambda one: (one in self._blamed, len(self._lines[one])))
        if len(self._lines[most]) <= own + 1 and (most not in self._blamed or peer in self._blamed):
            raise error
        newest = self._lines[most][-1]
        self._leave_line(most, newest)
        if not newest.done():
            newest.set_exception(error)

    def _exhausted(self, whose: str, limit: int) -> ResourceExhausted:
        text = f"{self.what}: {limit} wait {whose}: ask again"
        return ResourceExhausted(text, subject=self.what, limit=limit, value=limit + 1)

    def _next(self) -> str | None:
        """The connection that has the next turn. Few are passed over: only few can have all places of one; and those
        that are blamed, until nobody else waits."""
        most = self._limits.places_each_max
        blamed = None
        for peer in self._lines:
            if self._held[peer] < most:
                if peer not in self._blamed:
                    return peer
                blamed = blamed or peer
        return blamed

    def _give(self) -> None:
        while self._free and (peer := self._next()) is not None:
            line = self._lines.pop(peer)
            turn = line.popleft()
            if line:
                self._lines[peer] = line  # At the end.
            self.waiting -= 1
            if not turn.done():
                self._free -= 1
                self._held[peer] += 1
                turn.set_result(None)
        self._hurry()

    def _take_back(self, peer: str) -> None:
        self._free += 1
        self._held[peer] -= 1
        self._held += Counter()  # Without those that have none.
        self._give()

    def _leave_line(self, peer: str, turn: asyncio.Future[None]) -> None:
        """One that has left already is no fault."""
        line = self._lines.get(peer)
        if line is not None and turn in line:
            self.waiting -= 1
            line.remove(turn)
            if not line:
                del self._lines[peer]
