"""Reserves room for large answers: pulls and describes begin when their answer fits the memory that answers share.

Each request first reserves the largest possible size. Once the answer's real size is known, the reservation shrinks to
it and lasts until the client has taken the answer. Connections take turns. A connection with an answer that is not
taken comes after those that have none. Small answers have a line of their own, and some room that large ones leave
free: a look at one queue does not wait for clients that read nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.limits import (
    DESCRIBED_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.core.dispatch.shares import Share

Start = Callable[["Reservation"], object]
_Line = OrderedDict[Hashable, deque[tuple[Start, int]]]


def described_bytes(request: wire.Describe) -> int:
    """Returns the size of the largest answer to `request`, in bytes."""
    if request.bindings:
        return LARGE_ANSWER_BYTES
    return min(LARGE_ANSWER_BYTES, DESCRIBED_BYTES_MAX * (1 + len(request.queues) + len(request.keys)))


class Reservation:
    """Keeps the bytes reserved for one answer. `release` may be called more than once."""

    __slots__ = ("_room", "_source", "bytes")

    def __init__(self, room: AnswerRoom, source: Hashable, size_bytes: int) -> None:
        self._room = room
        self._source = source
        self.bytes = size_bytes

    def settle(self, size_bytes: int) -> None:
        """Sets the reservation to the answer's real size."""
        if self.bytes:
            by_bytes, self.bytes = size_bytes - self.bytes, size_bytes
            self._room.change(by_bytes)

    def release(self) -> None:
        """Gives the reserved bytes back; called when the answer is taken or dropped."""
        if self.bytes:
            freed, self.bytes = self.bytes, 0
            self._room.let_go(self._source, freed)


class AnswerRoom:
    """Hands out reservations: first to sources that have none, then to the others; in turn within each group."""

    def __init__(self, limit_bytes: int) -> None:
        self.share = Share("answers", max(limit_bytes, LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES))
        self._have_none: _Line = OrderedDict()
        self._have_some: _Line = OrderedDict()
        """The requests of large answers that wait, by source: `_have_none` for sources without a reservation,
        `_have_some` for the others."""
        self._small: _Line = OrderedDict()
        """Those of small answers, by source."""
        self._held: Counter[Hashable] = Counter()
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Returns the number of sources that wait and have no reservation; and of those that wait for small answers."""
        return len(self._have_none) + len(self._small)

    def reserve(self, start: Start, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> None:
        """Calls `start` as soon as there is room, which may be at once."""
        if size_bytes <= SMALL_ANSWER_BYTES:
            line = self._small
        else:
            line = self._have_some if self._held[source] else self._have_none
        line.setdefault(source, deque()).append((start, size_bytes))
        self._admit()

    async def reserved(self, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> Reservation:
        """Waits for room and returns the reservation; otherwise like `reserve`."""
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
                done.result().release()  # The reservation came, but the waiting task was cancelled before it resumed.
            raise

    def change(self, by_bytes: int) -> None:
        """Counts that answers hold `by_bytes` more, or less if it is negative."""
        if by_bytes >= 0:
            self.share.hold(by_bytes)
        else:
            self.share.let_go(-by_bytes)
            self._admit()

    def let_go(self, source: Hashable, freed_bytes: int) -> None:
        """Ends one reservation of this source and frees its bytes."""
        self._held[source] -= 1
        if not self._held[source]:
            del self._held[source]
            if source in self._have_some:
                self._have_none[source] = self._have_some.pop(source)
        self.change(-freed_bytes)

    def _admit(self) -> None:
        """Starts requests while there is room. A started request may release its room at once, which calls this method
        again: that call returns, and the loop that is already running continues."""
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._began_first(self._small, self._small, 0) or self._began_first(
                self._have_none or self._have_some, self._have_some, SMALL_ANSWERS_BYTES
            ):
                pass
        finally:
            self._admitting = False

    def _began_first(self, line: _Line, rest: _Line, leaves_bytes: int) -> bool:
        """Starts the first request of `line`, if there is room for it and `leaves_bytes` besides; its source goes on in
        `rest`. Returns whether it did."""
        if not line:
            return False
        source, pieces = next(iter(line.items()))
        start, size_bytes = pieces[0]
        if self.share.free_bytes < size_bytes + leaves_bytes:
            return False
        del line[source]
        pieces.popleft()
        self._held[source] += 1
        if pieces:
            rest[source] = pieces
        self.share.hold(size_bytes)
        start(Reservation(self, source, size_bytes))
        return True
