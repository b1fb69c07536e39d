"""Reserves room for large answers: pulls and describes begin when their answer fits the memory that answers share.

Each request first reserves the largest possible size. Once the answer's real size is known, the reservation shrinks to
it and lasts until the client has taken the answer. Connections take turns, in the order in which they began to wait. A
connection with an answer that is not taken comes after those that have none, but for every ninth turn, which is that of
who has waited longest.

Reads that take long keep no room from the others: each begins as a quick one. If that is not done soon, it gives its
room back, and begins anew as a long one, behind the quick ones of all connections. Fewer of these are worked on at a
time than there is room for: a pull does not wait until large queues were looked at, whoever asked for that.

Small answers have some room of their own, and need not wait while there is some left: a look at one queue does not wait
for clients that read no large answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from itertools import count
from operator import attrgetter

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.limits import (
    DESCRIBED_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    LONG_PASSED_MAX,
    PASSED_MAX,
    QUICK_ANSWERS_MAX,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.adapters.waiting_line import WaitingLine
from shoal_slice_node.core.dispatch.shares import Share

Start = Callable[["Reservation"], object]


class _Waiting:
    """Describes a source that waits: its place, its line, and its requests with their sizes in bytes."""

    __slots__ = ("_line", "_source", "_ticket", "requests")

    def __init__(self, source: Hashable, ticket: int, line: WaitingLine, requests: deque[tuple[Start, int]]) -> None:
        self._source = source
        self._ticket = ticket
        self._line = line
        self.requests = requests
        line.add(ticket, source)

    def stand_in(self, line: WaitingLine) -> None:
        """Moves it to the place of its ticket in another line."""
        if line is not self._line:
            self._line.remove(self._ticket)
            self._line = line
            line.add(self._ticket, self._source)


def described_bytes(request: wire.Describe) -> int:
    """Returns the size of the largest answer to `request`, in bytes."""
    if request.bindings:
        return LARGE_ANSWER_BYTES
    return min(LARGE_ANSWER_BYTES, DESCRIBED_BYTES_MAX * (1 + len(request.queues) + len(request.keys)))


class Reservation:
    """Keeps the bytes reserved for one answer. `is_small`: of the room for small answers. `is_long`: of a long read.
    `release` may be called more than once."""

    __slots__ = ("_is_long", "_is_small", "_room", "_source", "bytes")

    def __init__(
        self, room: AnswerRoom, source: Hashable, size_bytes: int, is_small: bool = False, is_long: bool = False
    ) -> None:
        self._room = room
        self._source = source
        self._is_long = is_long
        self._is_small = is_small
        self.bytes = size_bytes

    @property
    def must_be_quick(self) -> bool:
        """Returns whether the read has to give this room back if it is not done soon."""
        return not (self._is_small or self._is_long)

    def settle(self, size_bytes: int) -> None:
        """Sets the reservation to the answer's real size."""
        if self.bytes:
            self._end_work()
            by_bytes, self.bytes = size_bytes - self.bytes, size_bytes
            self._room.change(by_bytes, self._is_small)

    def release(self) -> None:
        """Gives the reserved bytes back; called when the answer is taken or dropped."""
        if self.bytes:
            self._end_work()
            freed, self.bytes = self.bytes, 0
            self._room.let_go(self._source, freed, self._is_small)

    def _end_work(self) -> None:
        if self._is_long:
            self._is_long = False
            self._room.long_read_ended()


class _Lines:
    """Keeps sources that wait in two lines: those that have no reservation, and those that have some."""

    __slots__ = ("have_none", "have_some")

    def __init__(self) -> None:
        self.have_none = WaitingLine()
        self.have_some = WaitingLine()

    def in_use(self) -> list[WaitingLine]:
        return [line for line in (self.have_none, self.have_some) if line]


class AnswerRoom:
    """Hands out reservations: first to sources that have none, then to the others; in turn within each group."""

    def __init__(self, limit_bytes: int) -> None:
        self.share = Share("answers", max(limit_bytes - SMALL_ANSWERS_BYTES, LARGE_ANSWER_BYTES))
        self._small = Share("small answers", SMALL_ANSWERS_BYTES)
        self._quick = _Lines()
        self._long = _Lines()
        """A source that waits is in one line of one of these, or in one of each. It keeps its ticket until a request of
        it begins, so that it loses no place by a reservation that comes and goes."""
        self._waiting: dict[tuple[_Lines, Hashable], _Waiting] = {}
        self._tickets = count()
        at_once = self.share.limit_bytes // LARGE_ANSWER_BYTES
        self._long_max = max(1, at_once - min(QUICK_ANSWERS_MAX, max(1, at_once // 4)))
        """How many long reads are worked on at a time."""
        self._long_reads = 0
        """How many are now."""
        self._held: Counter[Hashable] = Counter()
        """How many reservations each source has."""
        self._passed = 0
        """How many began in a row before the one that had waited longest."""
        self._long_passed = 0
        """How many began in a row while a long one waited."""
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Returns the number of sources that wait and have no reservation; with reads of both kinds it counts twice."""
        return len(self._quick.have_none) + len(self._long.have_none)

    @property
    def others_wait(self) -> bool:
        """Returns whether quick reads wait."""
        return bool(self._quick.in_use())

    @property
    def has_room_for_small(self) -> bool:
        """Returns whether a small answer need not wait now."""
        return self._small.free_bytes >= SMALL_ANSWER_BYTES

    def reserve(
        self, start: Start, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES, is_long: bool = False
    ) -> None:
        """Calls `start` as soon as there is room, which may be at once. `is_long`: the read was not done as a quick
        one."""
        if size_bytes <= SMALL_ANSWER_BYTES and self.has_room_for_small and not is_long:
            self._small.hold(size_bytes)
            self._count(source, 1)
            start(Reservation(self, source, size_bytes, is_small=True))
            return
        lines = self._long if is_long else self._quick
        waiting = self._waiting.get((lines, source))
        if waiting is None:
            waiting = self._wait(lines, source, deque())
        waiting.requests.append((start, size_bytes))
        self._admit()

    async def reserved(
        self, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES, is_long: bool = False
    ) -> Reservation:
        """Waits for room and returns the reservation; otherwise like `reserve`."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def start(reservation: Reservation) -> None:
            if done.done():
                reservation.release()
            else:
                done.set_result(reservation)

        self.reserve(start, source, size_bytes, is_long)
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
        if by_bytes > 0:
            share.hold(by_bytes)
        else:
            share.let_go(-by_bytes)
        self._admit()  # Also where it holds more: work on it may have ended.

    def let_go(self, source: Hashable, freed_bytes: int, is_small: bool) -> None:
        """Ends one reservation of this source and frees its bytes."""
        self._count(source, -1)
        self.change(-freed_bytes, is_small)

    def long_read_ended(self) -> None:
        """Counts one long read less that is worked on; `change` is to follow."""
        self._long_reads -= 1

    def _count(self, source: Hashable, more: int) -> None:
        """Counts a reservation more, or less, of this source; it may belong into another line then."""
        self._held[source] += more
        if not self._held[source]:
            del self._held[source]
        for lines in (self._quick, self._long):
            waiting = self._waiting.get((lines, source))
            if waiting is not None:
                waiting.stand_in(self._line(lines, source))

    def _line(self, lines: _Lines, source: Hashable) -> WaitingLine:
        return lines.have_some if source in self._held else lines.have_none

    def _wait(self, lines: _Lines, source: Hashable, requests: deque[tuple[Start, int]]) -> _Waiting:
        """Puts a source behind all others of its line."""
        waiting = _Waiting(source, next(self._tickets), self._line(lines, source), requests)
        self._waiting[lines, source] = waiting
        return waiting

    def _next_line(self) -> WaitingLine | None:
        """Returns the line whose first source may begin next; None: nothing that waits may begin."""
        if self.share.free_bytes < LARGE_ANSWER_BYTES:
            return None  # Nor may a small one: or they would take what a large one waits for.
        may_begin, long = self._quick.in_use(), self._long.in_use()
        if long and (self._long_reads < self._long_max or self._long_passed >= LONG_PASSED_MAX):
            may_begin += long
        if not may_begin:
            return None
        oldest = min(may_begin, key=attrgetter("first"))
        chosen = oldest if self._passed >= PASSED_MAX else may_begin[0]
        self._passed = 0 if chosen is oldest else self._passed + 1
        self._long_passed = 0 if not long or chosen in long else self._long_passed + 1
        return chosen

    def _admit(self) -> None:
        """Starts requests while there is room. A started request may release its room at once, which calls this method
        again: that call returns, and the loop that is already running continues."""
        if self._admitting:
            return
        self._admitting = True
        try:
            while (line := self._next_line()) is not None:
                self._begin(line)
        finally:
            self._admitting = False

    def _begin(self, line: WaitingLine) -> None:
        source = line.remove(line.first)
        lines = self._long if line in (self._long.have_none, self._long.have_some) else self._quick
        requests = self._waiting.pop((lines, source)).requests
        start, size_bytes = requests.popleft()
        self._count(source, 1)
        if requests:
            self._wait(lines, source, requests)
        self.share.hold(size_bytes)
        is_long = lines is self._long
        self._long_reads += is_long
        start(Reservation(self, source, size_bytes, is_long=is_long))
