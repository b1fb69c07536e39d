"""Which unary calls are read next: a few at a time, connections in turn. One that is read and worked on has no place
any more, and no connection has more than a few of those: how long its work takes is its own affair.

A connection whose call said nothing, or did not read its answer, while others waited comes after all others for a
while. Not here: reading, parsing, writing (unary).
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain

from shoal_contract.errors import ResourceExhausted
from shoal_contract.places import Blamed
from shoal_slice_node.adapters.limits import (
    UNARY_AT_ONCE_MAX,
    UNARY_PER_CONNECTION_MAX,
    UNARY_UNREAD_BYTES_MAX,
    UNARY_WAITING_MAX,
    UNARY_WAITING_PER_CONNECTION_MAX,
    UNARY_WORK_BYTES,
    UNARY_WORKED_EACH_MAX,
    UNARY_WORKING_BYTES_HIGH,
    UNARY_WORKING_BYTES_MAX,
)

_Turn = asyncio.Future[None]


class Admission:
    """UNARY_AT_ONCE_MAX calls are read at a time, UNARY_PER_CONNECTION_MAX of one connection; further ones wait unread.
    `parsing`: for one large request in a turn of the loop."""

    def __init__(self, others_wait: Callable[[], bool] = lambda: False) -> None:
        """`others_wait`: whether calls wait for memory that answers hold which are not read."""
        self.parsing = asyncio.Lock()
        self._others_wait = others_wait
        self._working_bytes = 0
        self._unread_bytes = 0
        """Of answers whose clients do not read them, or not yet."""
        self._free = UNARY_AT_ONCE_MAX
        self._held: Counter[str] = Counter()
        """Places, by connection."""
        self._worked: Counter[str] = Counter()
        """Calls that were read and are not answered, by connection."""
        self._lines: OrderedDict[str, deque[_Turn]] = OrderedDict()
        self._last: OrderedDict[str, deque[_Turn]] = OrderedDict()
        """The calls that wait, by connection: the first line has the next turn. None is empty. `_last`: of those that
        were blamed, after all others."""
        self._blamed = Blamed()
        self.waiting = 0

    @property
    def crowded(self) -> bool:
        """A call waits only because others have all places, not for those of its own connection."""
        return not self._free and self._next() is not None

    @property
    def crowded_by_answers(self) -> bool:
        """A call waits for what answers hold that are not read."""
        return self.crowded or self._unread_bytes > UNARY_UNREAD_BYTES_MAX or self._others_wait()

    def blame(self, peer: str) -> None:
        """It held up others."""
        self._blamed.add(peer)
        if peer in self._lines:
            self._last[peer] = self._lines.pop(peer)

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[Callable[[], None]]:
        """Gives what gives the place back sooner. Raises ResourceExhausted where too many wait already: where its own
        connection has many, or the one that has most."""
        line = self._lines_for(peer).setdefault(peer, deque())
        turn: _Turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        self.waiting += 1
        self._give()
        if len(line) > UNARY_WAITING_PER_CONNECTION_MAX:
            self._refuse(line)
        elif self.waiting > UNARY_WAITING_MAX:
            self._refuse(max(chain(self._lines.values(), self._last.values()), key=len))
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._take_back(peer)

        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                leave()
            else:
                self._leave_line(peer, turn)
            raise
        try:
            yield leave
        finally:
            leave()

    @contextmanager
    def working(self, size_bytes: int) -> Iterator[None]:
        """Until a request's answer is there: what a client can draw out is not counted."""
        size_bytes += UNARY_WORK_BYTES
        self._working_bytes += size_bytes
        try:
            yield
        finally:
            self._working_bytes -= size_bytes
            self._give()

    @contextmanager
    def read(self, peer: str, leave: Callable[[], None]) -> Iterator[None]:
        """From when a request was read until its answer is taken. Its call keeps no place: else few connections with
        long reads stop all others."""
        self._worked[peer] += 1
        leave()
        try:
            yield
        finally:
            self._worked[peer] -= 1
            if not self._worked[peer]:
                del self._worked[peer]
            self._give()

    @contextmanager
    def unread(self, size_bytes: int) -> Iterator[None]:
        """While an answer is not read."""
        size_bytes += UNARY_WORK_BYTES
        self._unread_bytes += size_bytes
        try:
            yield
        finally:
            self._unread_bytes -= size_bytes

    def _refuse(self, line: deque[_Turn]) -> None:
        """The call that came last of a connection."""
        turn = next((turn for turn in reversed(line) if not turn.done()), None)
        if turn is not None:
            turn.set_exception(
                ResourceExhausted(
                    f"{len(line)} calls of this connection wait for their turn, {self.waiting} in all; the limits are"
                    f" {UNARY_WAITING_PER_CONNECTION_MAX} and {UNARY_WAITING_MAX}",
                    subject="unary calls",
                    limit=UNARY_WAITING_PER_CONNECTION_MAX,
                    value=len(line),
                )
            )

    def _next(self) -> tuple[OrderedDict[str, deque[_Turn]], str] | None:
        """The connection that has the next turn. Few are passed over: only few can have all places of one."""
        for lines in (self._lines, self._last):
            for peer in lines:
                if self._may_be_read(peer):
                    return lines, peer
        return None

    def _may_be_read(self, peer: str) -> bool:
        """The more is worked on, the less may be added: at first by connections that have some of it, then by all."""
        if self._held[peer] >= UNARY_PER_CONNECTION_MAX or self._working_bytes > UNARY_WORKING_BYTES_MAX:
            return False
        own = self._worked[peer] + self._held[peer]
        return not own or (own < UNARY_WORKED_EACH_MAX and self._working_bytes <= UNARY_WORKING_BYTES_HIGH)

    def _lines_for(self, peer: str) -> OrderedDict[str, deque[_Turn]]:
        if peer in self._last or peer in self._blamed:
            return self._last
        return self._lines

    def _give(self) -> None:
        while self._free and (found := self._next()) is not None:
            lines, peer = found
            line = lines.pop(peer)
            turn = line.popleft()
            if line:
                lines[peer] = line  # At the end.
            if turn.done():
                continue  # Its task will hear of it.
            self._free -= 1
            self._held[peer] += 1
            self.waiting -= 1
            turn.set_result(None)

    def _take_back(self, peer: str) -> None:
        self._free += 1
        self._held[peer] -= 1
        if not self._held[peer]:
            del self._held[peer]
        self._give()

    def _leave_line(self, peer: str, turn: _Turn) -> None:
        self.waiting -= 1
        for lines in (self._lines, self._last):
            line = lines.get(peer)
            if line is not None and turn in line:
                line.remove(turn)
                if not line:
                    del lines[peer]
