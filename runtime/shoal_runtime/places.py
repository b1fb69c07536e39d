"""Shares a bounded number of places among connections: in turn, and so that no connection may have all of them.

Where the line is full, the connection with most calls in it gives way, not the newcomer. A call that has a place has
less time where others wait for it; a service may then blame its connection, which comes after all others for a while.
Connections that were served have every other turn, so that unknown ones do not hold them up. Not here: what a place is
for (each service).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf

from shoal_contract.errors import ResourceExhausted
from shoal_runtime.limits import BLAME_S, BLAMED_MAX, PATIENCE_S_MIN, SERVED_MAX
from shoal_runtime.patience import Patience, patience_until


@dataclass(frozen=True, slots=True)
class PlacesLimits:
    """Holds the limits of places. `each`: for one connection. `line_s`: the seconds within which a waiting connection
    should have its turn; with many in line each place has less time. `served_times`: a connection that was served has
    so many times as long as others."""

    places_max: int
    places_each_max: int
    waiting_max: int
    waiting_each_max: int
    line_s: float = inf
    served_times: float = 1.0

    def __post_init__(self) -> None:
        assert self.places_each_max < self.places_max
        assert self.waiting_each_max < self.waiting_max


class Blamed:
    """Keeps the connections that held up others. They come last, for BLAME_S. The latest BLAMED_MAX are kept."""

    def __init__(self) -> None:
        self._until_s: OrderedDict[str, float] = OrderedDict()
        """The time until which each is blamed, in seconds of time.monotonic."""

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, str) and self._until_s.get(peer, 0) > time.monotonic()

    def add(self, peer: str) -> None:
        self._until_s[peer] = time.monotonic() + BLAME_S
        self._until_s.move_to_end(peer)

    def over(self) -> Iterator[str]:
        """Yields the connections that are not blamed any more, each once."""
        while self._until_s:
            peer, until_s = next(iter(self._until_s.items()))
            if len(self._until_s) <= BLAMED_MAX and until_s > time.monotonic():
                return
            del self._until_s[peer]
            yield peer


_Line = deque[asyncio.Future[None]]
_Lines = OrderedDict[str, _Line]
"""The lines by connection: the first line has the next turn. No line is empty."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """Holds a call that has a place, and when the patience with it ends. Times are in seconds of the loop's clock."""

    blamed: bool
    served: bool
    began_s: float
    crowded_s: float
    most_at_s: float

    def crowded_at(self, turns_s: Mapping[bool, float]) -> float:
        """Returns when its time ends if others wait for its place. `turns_s`: the most seconds that connections that
        were served (True), and those that were not, may have then."""
        return self.began_s + min(self.crowded_s, turns_s[self.served])


class Places:
    """Gives places to calls. `what`: the subject of refusals. A connection is named as gRPC names its client
    (`context.peer()`)."""

    def __init__(self, what: str, limits: PlacesLimits, may_have: Callable[[str], bool] = lambda _: True) -> None:
        """`may_have` is a further bound of a connection; call `give` when its answer may have changed."""
        self.what = what
        self._limits = limits
        self._may_have = may_have
        self._free = limits.places_max
        self._held: Counter[str] = Counter()
        """The number of places by connection; only connections that have some."""
        self._lines: _Lines = OrderedDict()
        self._served_lines: _Lines = OrderedDict()
        self._last: _Lines = OrderedDict()
        """The calls that wait. The first two have turns alternately; `_last` holds blamed connections, after all
        others."""
        self._served_next = True
        self._blamed = Blamed()
        self._served: OrderedDict[str, bool] = OrderedDict()
        """The latest connections that used their places in time."""
        self._holders: dict[Patience, _Holder] = {}
        self._hurried = False
        self.waiting = 0

    @property
    def crowded(self) -> bool:
        """Tells whether a connection waits only for places that others have."""
        return not self._free and self._next() is not None

    def held(self, peer: str) -> int:
        """Returns the number of places that a connection has."""
        return self._held[peer]

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[Callable[[], None]]:
        """Waits for a place, and holds it within the context. Yields a function that gives it back sooner. Raises
        ResourceExhausted where too many wait, also during the wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lines = self._lines_for(peer)
        if not self._free or self._held[peer] >= self._limits.places_each_max or not self._may_have(peer):
            self._make_room(peer)
        lines.setdefault(peer, deque()).append(turn)
        self.waiting += 1
        self.give()
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._take_back(peer)

        try:
            await turn
            yield leave
        finally:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                leave()
            else:
                self._leave_line(peer, turn)
                self._hurry()

    @asynccontextmanager
    async def patience(self, peer: str, most_s: float, crowded_s: float) -> AsyncIterator[None]:
        """Bounds how long a call that has a place waits. Raises TimeoutError after `most_s` seconds; where others wait
        for places, after `crowded_s`, and sooner where very many wait. See `blame`."""
        now_s = asyncio.get_running_loop().time()
        async with patience_until(now_s + most_s) as patience:
            served = peer in self._served
            crowded_s *= self._limits.served_times if served else 1
            self._holders[patience] = _Holder(peer in self._blamed, served, now_s, crowded_s, now_s + most_s)
            self._hurry()
            try:
                yield
            finally:
                del self._holders[patience]
                self._hurry()

    def blame(self, peer: str, in_full: bool = True) -> None:
        """Notes that a connection let its time pass. If it was served before, it now counts as unknown. Otherwise, if
        it had all its time (`in_full`), it comes last."""
        if self._served.pop(peer, False):
            self._move(peer, self._served_lines, self._lines)
        elif in_full:
            self._blamed.add(peer)
            self._move(peer, self._lines, self._last)

    def praise(self, peer: str) -> None:
        """Notes that a connection used its place in time."""
        if peer in self._blamed:
            return
        self._served[peer] = True
        self._served.move_to_end(peer)
        self._move(peer, self._lines, self._served_lines)
        if len(self._served) > SERVED_MAX:
            oldest, _ = self._served.popitem(last=False)
            self._move(oldest, self._served_lines, self._lines)

    @staticmethod
    def _move(peer: str, lines: _Lines, to: _Lines) -> None:
        """Moves a connection to the end of other lines, if it waits."""
        if peer in lines:
            to[peer] = lines.pop(peer)

    def give(self) -> None:
        """Gives the free places to calls that wait."""
        for peer in self._blamed.over():
            self._move(peer, self._last, self._lines)
        while self._free and (found := self._next()) is not None:
            lines, peer = found
            self._served_next = lines is not self._served_lines
            line = lines.pop(peer)
            turn = line.popleft()
            if line:
                lines[peer] = line  # At the end.
            self.waiting -= 1
            if not turn.done():
                self._free -= 1
                self._held[peer] += 1
                turn.set_result(None)
        self._hurry()

    def _hurry(self) -> None:
        """Shortens the time of as many holders of places as calls wait for them, those first that end first. Waiting
        calls of blamed connections shorten only the time of blamed holders."""
        wanted, wanted_last = (0, 0) if not self._holders else self._wanted()
        if not wanted + wanted_last and not self._hurried:
            return
        self._hurried = wanted + wanted_last > 0
        now_s = asyncio.get_running_loop().time()
        turns_s = {True: self._turn_s(self._served_lines), False: self._turn_s(self._lines)}

        def order(item: tuple[Patience, _Holder]) -> tuple[bool, float]:
            return not item[1].blamed, item[1].crowded_at(turns_s)

        for patience, holder in sorted(self._holders.items(), key=order):
            due_s = max(holder.crowded_at(turns_s), now_s)
            if wanted_last and holder.blamed:
                wanted_last -= 1
            elif wanted:
                wanted -= 1
            else:
                due_s = holder.most_at_s
                if patience.when() != due_s:
                    patience.reschedule(due_s)
            if patience.when() > due_s:  # A time that is over already ends, however often this runs.
                patience.reschedule(due_s)

    def _wanted(self) -> tuple[int, int]:
        """Returns how many calls wait only for places that others have: of connections that are not blamed, and of
        blamed ones. Stops counting at the number of holders."""
        if self._free:
            return 0, 0
        return self._wanting(self._lines, self._served_lines), self._wanting(self._last)

    def _wanting(self, *some: _Lines) -> int:
        wanted, most = 0, self._limits.places_each_max
        for lines in some:
            for peer, line in lines.items():
                if self._may_have(peer):
                    wanted += min(len(line), most - self._held[peer])
                    if wanted >= len(self._holders):
                        return wanted
        return wanted

    def _turn_s(self, lines: _Lines) -> float:
        """Returns how many seconds each holder may have so that the connections of `lines` get their turns in time."""
        return max(PATIENCE_S_MIN, self._limits.line_s * self._limits.places_max / max(1, len(lines)))

    def _in_turn(self) -> tuple[_Lines, _Lines, _Lines]:
        if self._served_next:
            return self._served_lines, self._lines, self._last
        return self._lines, self._served_lines, self._last

    def _lines_for(self, peer: str) -> _Lines:
        for lines in self._in_turn():
            if peer in lines:
                return lines
        if peer in self._blamed:
            return self._last
        return self._served_lines if peer in self._served else self._lines

    def _make_room(self, peer: str) -> None:
        """Makes room in the line for one more call of this connection. Where the line is full, a blamed connection
        gives way, or else the connection with most calls in it. Raises ResourceExhausted."""
        own_lines = self._lines_for(peer)
        own = len(own_lines.get(peer, ()))
        if own >= self._limits.waiting_each_max:
            raise self._exhausted("of your connection", self._limits.waiting_each_max)
        if self.waiting < self._limits.waiting_max:
            return
        error = self._exhausted("in all", self._limits.waiting_max)
        giving = (self._last,) if self._last else (self._lines, self._served_lines)
        size, most = max((len(line), other) for lines in giving for other, line in lines.items())
        blamed_alone = own_lines is self._last and not self._last
        alike = (own_lines is self._last) == bool(self._last)
        if blamed_alone or (alike and size <= own + 1):
            raise error
        newest = self._lines_for(most)[most][-1]
        self._leave_line(most, newest)
        if not newest.done():
            newest.set_exception(error)

    def _exhausted(self, whose: str, limit: int) -> ResourceExhausted:
        text = f"{self.what}: {limit} wait {whose}: ask again"
        return ResourceExhausted(text, subject=self.what, limit=limit, value=limit + 1)

    def _next(self) -> tuple[_Lines, str] | None:
        """Returns the connection that has the next turn, and its lines. It skips few connections: only few can have as
        many places as one may have."""
        most = self._limits.places_each_max
        for lines in self._in_turn():
            for peer in lines:
                if self._held[peer] < most and self._may_have(peer):
                    return lines, peer
        return None

    def _take_back(self, peer: str) -> None:
        self._free += 1
        self._held[peer] -= 1
        if not self._held[peer]:
            del self._held[peer]
        self.give()

    def _leave_line(self, peer: str, turn: asyncio.Future[None]) -> None:
        """Takes a call out of the line. A call that has left already is no error."""
        for lines in self._in_turn():
            line = lines.get(peer)
            if line is not None and turn in line:
                self.waiting -= 1
                line.remove(turn)
                if not line:
                    del lines[peer]
