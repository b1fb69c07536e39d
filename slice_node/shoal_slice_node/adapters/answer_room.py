"""Reserves room for large answers: pulls and describes begin when their answer fits the memory that answers share.

Each request first reserves the largest possible size. Once the answer's real size is known, the reservation shrinks to
it and lasts until the client has taken the answer. Connections take turns, in the order in which they began to wait. A
connection with an answer that is not taken comes after those that have none, but for every ninth turn. Small answers
have some room of their own, and need not wait while there is some left: a look at one queue does not wait for clients
that read no large answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import NamedTuple

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.limits import (
    DECODED_RANGES_BYTES,
    DESCRIBED_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    PASSED_MAX,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.adapters.waiting_line import WaitingLine
from shoal_slice_node.core.dispatch.shares import Share

Start = Callable[["Reservation"], object]


class _Waiting(NamedTuple):
    """Describes a source that waits: its place, and its requests with their sizes in bytes."""

    ticket: int
    requests: deque[tuple[Start, int]]


def described_bytes(request: wire.Describe, decodes_ranges: bool = False) -> int:
    """Returns the size of the largest answer to `request`, in bytes, and of what is in memory meanwhile: done ranges,
    if it `decodes_ranges`."""
    if request.bindings:
        return LARGE_ANSWER_BYTES
    size_bytes = DESCRIBED_BYTES_MAX * (1 + len(request.queues) + len(request.keys))
    return min(LARGE_ANSWER_BYTES, size_bytes + DECODED_RANGES_BYTES * decodes_ranges)


class Reservation:
    """Keeps the bytes reserved for one answer. `is_small`: of the room for small answers. `release` may be called more
    than once."""

    __slots__ = ("_is_small", "_room", "_source", "bytes")

    def __init__(self, room: AnswerRoom, source: Hashable, size_bytes: int, is_small: bool = False) -> None:
        self._room = room
        self._source = source
        self._is_small = is_small
        self.bytes = size_bytes

    def settle(self, size_bytes: int) -> None:
        """Sets the reservation to the answer's real size."""
        if self.bytes:
            by_bytes, self.bytes = size_bytes - self.bytes, size_bytes
            self._room.change(by_bytes, self._is_small)

    def release(self) -> None:
        """Gives the reserved bytes back; called when the answer is taken or dropped."""
        if self.bytes:
            freed, self.bytes = self.bytes, 0
            self._room.let_go(self._source, freed, self._is_small)


class AnswerRoom:
    """Hands out reservations: first to sources that have none, then to the others; in turn within each group."""

    def __init__(self, limit_bytes: int) -> None:
        self.share = Share("answers", max(limit_bytes - SMALL_ANSWERS_BYTES, LARGE_ANSWER_BYTES))
        self._small = Share("small answers", SMALL_ANSWERS_BYTES)
        self._waiting: dict[Hashable, _Waiting] = {}
        self._tickets = count()
        self._have_none = WaitingLine()
        self._have_some = WaitingLine()
        """Each source that waits is in one line: `_have_none` if it has no reservation, else `_have_some`. It keeps its
        ticket until a request of it begins, so that it loses no place by a reservation that comes and goes."""
        self._held: Counter[Hashable] = Counter()
        """How many reservations each source has."""
        self._passed = 0
        """How often in a row `_have_none` went before `_have_some`."""
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Returns the number of sources that wait and have no reservation."""
        return len(self._have_none)

    @property
    def has_room_for_small(self) -> bool:
        """Returns whether a small answer need not wait now."""
        return self._small.free_bytes >= SMALL_ANSWER_BYTES

    def reserve(self, start: Start, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> None:
        """Calls `start` as soon as there is room, which may be at once."""
        if size_bytes <= SMALL_ANSWER_BYTES and self.has_room_for_small:
            self._small.hold(size_bytes)
            self._count(source, 1)
            start(Reservation(self, source, size_bytes, is_small=True))
            return
        waiting = self._waiting.get(source)
        if waiting is None:
            waiting = self._wait(source, deque())
        waiting.requests.append((start, size_bytes))
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

    def change(self, by_bytes: int, is_small: bool = False) -> None:
        """Counts that answers hold `by_bytes` more, or less if it is negative. `is_small`: in the room for small
        ones."""
        share = self._small if is_small else self.share
        if by_bytes >= 0:
            share.hold(by_bytes)
        else:
            share.let_go(-by_bytes)
            self._admit()

    def let_go(self, source: Hashable, freed_bytes: int, is_small: bool) -> None:
        """Ends one reservation of this source and frees its bytes."""
        self._count(source, -1)
        self.change(-freed_bytes, is_small)

    def _count(self, source: Hashable, more: int) -> None:
        """Counts a reservation more, or less, of this source; it may belong into the other line then."""
        before = self._line(source)
        self._held[source] += more
        if not self._held[source]:
            del self._held[source]
        after, waiting = self._line(source), self._waiting.get(source)
        if waiting is not None and before is not after:
            before.remove(waiting.ticket)
            after.add(waiting.ticket, source)

    def _line(self, source: Hashable) -> WaitingLine:
        return self._have_some if source in self._held else self._have_none

    def _wait(self, source: Hashable, requests: deque[tuple[Start, int]]) -> _Waiting:
        """Puts a source behind all others of its line."""
        waiting = self._waiting[source] = _Waiting(next(self._tickets), requests)
        self._line(source).add(waiting.ticket, source)
        return waiting

    def _next_line(self) -> WaitingLine | None:
        """Returns the line whose first source comes next; None: nothing waits."""
        if self._have_some and (not self._have_none or self._passed == PASSED_MAX):
            return self._have_some
        return self._have_none or None

    def _admit(self) -> None:
        """Starts requests while there is room. A started request may release its room at once, which calls this method
        again: that call returns, and the loop that is already running continues."""
        if self._admitting:
            return
        self._admitting = True
        try:
            while (line := self._next_line()) is not None:
                if self.share.free_bytes < LARGE_ANSWER_BYTES:
                    break  # Also of small ones: or they would take what a large one waits for.
                self._passed = self._passed + 1 if line is self._have_none and self._have_some else 0
                self._begin(line)
        finally:
            self._admitting = False

    def _begin(self, line: WaitingLine) -> None:
        source = line.remove(line.first)
        requests = self._waiting.pop(source).requests
        start, size_bytes = requests.popleft()
        self._count(source, 1)
        if requests:
            self._wait(source, requests)
        self.share.hold(size_bytes)
        start(Reservation(self, source, size_bytes))
