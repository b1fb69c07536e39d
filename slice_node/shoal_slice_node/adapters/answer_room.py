"""Room for large answers: pulls, describes and lists begin when their answer will fit the memory that answers share.

Each reserves the largest size at first, and keeps its real one once it is known, until the client has taken it.
Connections come in turn, and who has an answer that is not taken comes after those who have none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable

from shoal_slice_node.adapters.limits import LARGE_ANSWER_BYTES
from shoal_slice_node.core.dispatch.shares import Share

Start = Callable[["Reservation"], object]
_Line = OrderedDict[Hashable, deque[tuple[Start, int]]]


class Reservation:
    """Bytes of one answer. `release` may be called again."""

    __slots__ = ("_room", "_source", "bytes")

    def __init__(self, room: AnswerRoom, source: Hashable, size_bytes: int) -> None:
        self._room = room
        self._source = source
        self.bytes = size_bytes

    def settle(self, size_bytes: int) -> None:
        """The answer is so large."""
        if self.bytes:
            by_bytes, self.bytes = size_bytes - self.bytes, size_bytes
            self._room.change(by_bytes)

    def release(self) -> None:
        """The answer is gone."""
        if self.bytes:
            freed, self.bytes = self.bytes, 0
            self._room.let_go(self._source, freed)


class AnswerRoom:
    """First come, first served, among sources that have as much."""

    def __init__(self, limit_bytes: int) -> None:
        self.share = Share("answers", max(limit_bytes, LARGE_ANSWER_BYTES))
        self._have_none: _Line = OrderedDict()
        self._have_some: _Line = OrderedDict()
        """What waits, by source: of those without a reservation, and of the others."""
        self._held: Counter[Hashable] = Counter()
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Sources that wait though they have nothing."""
        return len(self._have_none)

    def reserve(self, start: Start, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> None:
        """Calls `start` as soon as there is room, which may be at once."""
        line = self._have_some if self._held[source] else self._have_none
        line.setdefault(source, deque()).append((start, size_bytes))
        self._admit()

    async def reserved(self, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> Reservation:
        """The same, to be awaited."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def start(reservation: Reservation) -> None:
            if done.done():
                reservation.release()
            else:
                done.set_result(reservation)

        self.reserve(start, source, size_bytes)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():
                done.result().release()  # It came, and who waited was cancelled before hearing of it.
            raise

    def change(self, by_bytes: int) -> None:
        """What answers hold is so much more, or less."""
        self.share.used_bytes += by_bytes
        if by_bytes < 0:
            self._admit()

    def let_go(self, source: Hashable, freed_bytes: int) -> None:
        """One reservation of this source ends."""
        self._held[source] -= 1
        if not self._held[source]:
            del self._held[source]
            if source in self._have_some:
                self._have_none[source] = self._have_some.pop(source)
        self.change(-freed_bytes)

    def _admit(self) -> None:
        """Who is admitted may be gone and release at once, which comes back here: the loop under way sees to it."""
        if self._admitting:
            return
        self._admitting = True
        try:
            while line := self._have_none or self._have_some:
                source = next(iter(line))
                size_bytes = line[source][0][1]
                if self.share.left_bytes < size_bytes:
                    break
                self._begin(line, source, size_bytes)
        finally:
            self._admitting = False

    def _begin(self, line: _Line, source: Hashable, size_bytes: int) -> None:
        pieces = line.pop(source)
        start, _ = pieces.popleft()
        self._held[source] += 1
        if pieces:
            self._have_some[source] = pieces
        self.share.used_bytes += size_bytes
        start(Reservation(self, source, size_bytes))
