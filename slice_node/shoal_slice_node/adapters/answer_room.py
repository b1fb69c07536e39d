"""Reserves room for large answers: pulls and describes begin when their answer fits the memory that answers share.

Each request first reserves the largest possible size. Once the answer's real size is known, the reservation shrinks to
it and lasts until the client has taken the answer. Connections take turns, in the order in which they began to wait. A
connection with an answer that is not taken comes after those that have none, but for every ninth turn, which is that of
who has waited longest.

Reads that take long keep no room from the others: each begins as a quick one. If that is not done soon, or likely not
to be, it gives its room back, and begins anew as a middling or long one, behind the quick ones of all connections.
Fewer of these are worked on at a time than there is room for: a pull does not wait until large queues were looked at,
whoever asked for that. Middling ones do not wait for long ones: their queues are known not to be very large.

Small answers have some room of their own, and need not wait while there is some left: a look at one queue does not wait
for clients that read no large answers. Nor do quick reads: while there is no room for a large answer, they begin in the
room for brief ones. A read whose answer is not brief gives that back, and begins anew as a large one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from itertools import count, islice
from operator import attrgetter

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.limits import (
    ADMITTED_AT_ONCE_MAX,
    BRIEF_ANSWER_BYTES,
    DESCRIBED_BYTES_MAX,
    LARGE_ANSWER_BYTES,
    LOOKS_FOR_ROOM_MAX,
    PASSED_MAX,
    QUICK_ANSWERS_MAX,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)
from shoal_slice_node.adapters.waiting_line import WaitingLine
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.node.reads import Length

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
    """Keeps the bytes reserved for one answer. `share`: of which room; None: of that for large ones. `length`: of such
    a read. `release` may be called more than once."""

    __slots__ = ("_room", "_share", "_source", "_works", "bytes", "length")

    def __init__(
        self,
        room: AnswerRoom,
        source: Hashable,
        size_bytes: int,
        share: Share | None = None,
        length: Length = Length.QUICK,
    ) -> None:
        self._room = room
        self._source = source
        self._share = share or room.share
        self._works = True
        self.length = length
        self.bytes = size_bytes

    @property
    def must_be_quick(self) -> bool:
        """Returns whether the read has to give this room back if it is not done soon."""
        return self._share is not self._room.small and self.length is not Length.LONG

    @property
    def is_brief(self) -> bool:
        """Returns whether the read has to give this room back, too, if its answer is not brief."""
        return self._share is self._room.brief

    def settle(self, size_bytes: int) -> None:
        """Sets the reservation to the answer's real size."""
        if self.bytes:
            self._end_work()
            by_bytes, self.bytes = size_bytes - self.bytes, size_bytes
            self._room.change(by_bytes, self._share)

    def release(self) -> None:
        """Gives the reserved bytes back; called when the answer is taken or dropped."""
        if self.bytes:
            self._end_work()
            freed, self.bytes = self.bytes, 0
            self._room.let_go(self._source, freed, self._share)

    def _end_work(self) -> None:
        if self._works:
            self._works = False
            self._room.work_ended(self.length)


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

    def __init__(self, limit_bytes: int, brief_bytes: int = 0) -> None:
        """`limit_bytes`: of all answers. `brief_bytes`: what of them is for brief ones."""
        self.share = Share("answers", max(limit_bytes - SMALL_ANSWERS_BYTES - brief_bytes, LARGE_ANSWER_BYTES))
        self.small = Share("small answers", SMALL_ANSWERS_BYTES)
        self.brief = Share("brief answers", brief_bytes)
        self._lines = {length: _Lines() for length in Length}
        """A source that waits is in one line of one of these, or in one of each. It keeps its ticket until a request of
        it begins, so that it loses no place by a reservation that comes and goes."""
        self._waiting: dict[tuple[_Lines, Hashable], _Waiting] = {}
        self._tickets = count()
        at_once = self.share.limit_bytes // LARGE_ANSWER_BYTES
        kept = min(QUICK_ANSWERS_MAX, max(1, at_once // 4))
        self._works_max = {Length.MIDDLING: max(1, kept // 2), Length.LONG: max(1, at_once - kept)}
        """How many such reads are worked on at a time. Middling ones take of what is kept for quick ones."""
        self._works = Counter[Length]()
        """How many are now."""
        self._held: Counter[Hashable] = Counter()
        """How many reservations each source has."""
        self._passed = 0
        """How many began in a row before the one that had waited longest."""
        self._passed_by_brief = 0
        """The same of those in the room for brief answers."""
        self._admitting = False
        """Some are being started, or will be in the next turn of the event loop."""
        self._shut: dict[Callable[[], None], None] = {}
        """How sessions look whether they may be read again, that were found not to as there was too little room."""

    @property
    def waiting(self) -> int:
        """Returns the number of sources that wait and have no reservation; with reads of several lengths one counts for
        each."""
        return sum(len(lines.have_none) for lines in self._lines.values())

    def others_wait(self) -> bool:
        """Returns whether reads wait that are not long."""
        return any(self._lines[length].in_use() for length in Length if length is not Length.LONG)

    @property
    def has_room_for_small(self) -> bool:
        """Returns whether a small answer need not wait now."""
        return self.small.free_bytes >= SMALL_ANSWER_BYTES

    def shut(self, look: Callable[[], None]) -> None:
        """Notes that a session is not read while there is so little room: `look_again` is to call `look`."""
        self._shut[look] = None

    def look_again(self) -> None:
        """Lets sessions look whether there is room for them now, whoever let go of it. Must be called from time to
        time."""
        for look in list(islice(self._shut, LOOKS_FOR_ROOM_MAX)):
            del self._shut[look]
            look()

    def reserve(
        self, start: Start, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES, length: Length = Length.QUICK
    ) -> None:
        """Calls `start` as soon as there is room, which may be at once. `length`: of the read, as far as is known."""
        if size_bytes <= SMALL_ANSWER_BYTES and self.has_room_for_small and length is Length.QUICK:
            start(self._reservation(source, size_bytes, self.small, length))
            return
        lines = self._lines[length]
        waiting = self._waiting.get((lines, source))
        if waiting is None:
            waiting = self._wait(lines, source, deque())
        waiting.requests.append((start, size_bytes))
        self._admit()

    def reserved_at_once(self, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES) -> Reservation | None:
        """Returns a reservation for a quick read; None: it would have to wait, for room or for others."""
        if self._admitting or self.others_wait():
            return None
        if self._has_room_for_large:
            return self._reservation(source, size_bytes, self.share, Length.QUICK)
        if self.brief.free_bytes >= BRIEF_ANSWER_BYTES:
            return self._reservation(source, size_bytes, self.brief, Length.QUICK)
        return None

    async def reserved(
        self, source: Hashable, size_bytes: int = LARGE_ANSWER_BYTES, length: Length = Length.QUICK
    ) -> Reservation:
        """Waits for room and returns the reservation; otherwise like `reserve`."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def start(reservation: Reservation) -> None:
            if done.done():
                reservation.release()
            else:
                done.set_result(reservation)

        self.reserve(start, source, size_bytes, length)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():
                done.result().release()  # The reservation came, but the waiting task was cancelled before it resumed.
            raise

    def change(self, by_bytes: int, share: Share | None = None) -> None:
        """Counts that answers hold `by_bytes` more, or less if it is negative. `share`: in which room; None: in that
        for large ones."""
        share = share or self.share
        if by_bytes > 0:
            share.hold(by_bytes)
        else:
            share.let_go(-by_bytes)
        self._admit()  # Also where it holds more: work on it may have ended.

    def let_go(self, source: Hashable, freed_bytes: int, share: Share) -> None:
        """Ends one reservation of this source and frees its bytes."""
        self._count(source, -1)
        self.change(-freed_bytes, share)

    def work_ended(self, length: Length) -> None:
        """Counts one such read less that is worked on; `change` is to follow."""
        self._works[length] -= 1

    def _count(self, source: Hashable, more: int) -> None:
        """Counts a reservation more, or less, of this source; it may belong into another line then."""
        self._held[source] += more
        if not self._held[source]:
            del self._held[source]
        for lines in self._lines.values():
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
        may_begin = self._lines[Length.QUICK].in_use()
        if not self._has_room_for_large:  # Nor may a small one: or they would take what a large one waits for.
            return self._next_brief(may_begin)
        may_begin += self._lines[Length.LARGE].in_use()
        if self._may_work(Length.MIDDLING):
            may_begin += self._lines[Length.MIDDLING].in_use()
        if self._may_work(Length.LONG):
            may_begin += self._lines[Length.LONG].in_use()
        if not may_begin:
            return None
        oldest = min(may_begin, key=attrgetter("first"))
        chosen = oldest if self._passed >= PASSED_MAX else may_begin[0]
        self._passed = 0 if chosen is oldest else self._passed + 1
        return chosen

    @property
    def _has_room_for_large(self) -> bool:
        return self.share.free_bytes >= LARGE_ANSWER_BYTES

    def _next_brief(self, may_begin: list[WaitingLine]) -> WaitingLine | None:
        """Returns the line of quick reads whose first source may begin next in the room for brief answers."""
        if not may_begin or self.brief.free_bytes < BRIEF_ANSWER_BYTES:
            return None
        oldest = min(may_begin, key=attrgetter("first"))
        chosen = oldest if self._passed_by_brief >= PASSED_MAX else may_begin[0]
        self._passed_by_brief = 0 if chosen is oldest else self._passed_by_brief + 1
        return chosen

    def _may_work(self, length: Length) -> bool:
        """Returns whether one more such read may be worked on."""
        return self._works[length] < self._works_max[length]

    def _admit(self) -> None:
        """Starts requests while there is room, and the rest in later turns of the event loop if they are many. A
        started request may release its room at once, which calls this method again: that call returns, and the loop
        that is already running continues."""
        if self._admitting:
            return
        self._admitting = True
        begun = 0
        try:
            while begun < ADMITTED_AT_ONCE_MAX and (line := self._next_line()) is not None:
                self._begin(line)
                begun += 1
        finally:
            if begun < ADMITTED_AT_ONCE_MAX:
                self._admitting = False
            else:
                asyncio.get_running_loop().call_soon(self._admit_more)

    def _admit_more(self) -> None:
        self._admitting = False
        self._admit()

    def _begin(self, line: WaitingLine) -> None:
        source = line.remove(line.first)
        length, lines = next(item for item in self._lines.items() if line in (item[1].have_none, item[1].have_some))
        requests = self._waiting.pop((lines, source)).requests
        start, size_bytes = requests.popleft()
        share = self.share if self._has_room_for_large else self.brief
        reservation = self._reservation(source, size_bytes, share, length)
        if requests:
            self._wait(lines, source, requests)
        start(reservation)

    def _reservation(self, source: Hashable, size_bytes: int, share: Share, length: Length) -> Reservation:
        self._count(source, 1)
        self._works[length] += 1
        size_bytes = BRIEF_ANSWER_BYTES if share is self.brief else size_bytes
        share.hold(size_bytes)
        return Reservation(self, source, size_bytes, share, length)
