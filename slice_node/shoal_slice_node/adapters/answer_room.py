"""Reserves room for large answers: pulls and describes begin when their answer fits the memory that answers share.

Each request first reserves the largest possible size. Once the answer's real size is known, the reservation shrinks to
it and lasts until the client has taken the answer. Connections take turns, in the order in which they began to wait. A
connection with an answer that is not taken comes after those that have none, and one that asks for most of the node's
long work (core/long_work.py) after all others, but for every ninth turn, which is that of who has waited longest. Fewer
of these are worked on at a time than there is room for: a pull does not wait until large queues were looked at. Small
answers have some room of their own, and need not wait while there is some left: a look at one queue does not wait for
clients that read no large answers.
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
    HEAVY_PASSED_MAX,
    LARGE_ANSWER_BYTES,
    LIGHT_ANSWERS_MAX,
    PASSED_MAX,
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
    """Keeps the bytes reserved for one answer. `is_small`: of the room for small answers. `of_heavy`: its source is
    heavy. `release` may be called more than once."""

    __slots__ = ("_is_small", "_of_heavy", "_room", "_source", "bytes")

    def __init__(
        self, room: AnswerRoom, source: Hashable, size_bytes: int, is_small: bool = False, of_heavy: bool = False
    ) -> None:
        self._room = room
        self._source = source
        self._is_small = is_small
        self._of_heavy = of_heavy
        self.bytes = size_bytes

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
        if self._of_heavy:
            self._of_heavy = False
            self._room.heavy_work_ended()


class _Lines:
    """Keeps sources that wait in two lines: those that have no reservation, and those that have some."""

    __slots__ = ("have_none", "have_some")

    def __init__(self) -> None:
        self.have_none = WaitingLine()
        self.have_some = WaitingLine()

    def in_use(self) -> list[WaitingLine]:
        return [line for line in (self.have_none, self.have_some) if line]


def _none_is_heavy(source: Hashable) -> bool:
    return False


class AnswerRoom:
    """Hands out reservations: first to sources that have none, then to the others; in turn within each group.
    `is_heavy`: returns whether a source asks for most of the long work."""

    def __init__(self, limit_bytes: int, is_heavy: Callable[[Hashable], bool] = _none_is_heavy) -> None:
        self.share = Share("answers", max(limit_bytes - SMALL_ANSWERS_BYTES, LARGE_ANSWER_BYTES))
        self._small = Share("small answers", SMALL_ANSWERS_BYTES)
        self._waiting: dict[Hashable, _Waiting] = {}
        self._tickets = count()
        self._light = _Lines()
        self._heavy = _Lines()
        """Each source that waits is in one line of one of these. It keeps its ticket until a request of it begins, so
        that it loses no place by a reservation that comes and goes."""
        self._is_heavy = is_heavy
        at_once = self.share.limit_bytes // LARGE_ANSWER_BYTES
        self._heavy_max = max(1, at_once - min(LIGHT_ANSWERS_MAX, max(1, at_once // 4)))
        """How many requests of heavy sources are worked on at a time."""
        self._heavy_works = 0
        """How many are now."""
        self._held: Counter[Hashable] = Counter()
        """How many reservations each source has."""
        self._passed = 0
        """How many began in a row before the one that had waited longest."""
        self._heavy_passed = 0
        """How many began in a row while a heavy one waited."""
        self._admitting = False

    @property
    def waiting(self) -> int:
        """Returns the number of sources that wait and have no reservation."""
        return len(self._light.have_none) + len(self._heavy.have_none)

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
        if by_bytes > 0:
            share.hold(by_bytes)
        else:
            share.let_go(-by_bytes)
        self._admit()  # Also where it holds more: work on it may have ended.

    def let_go(self, source: Hashable, freed_bytes: int, is_small: bool) -> None:
        """Ends one reservation of this source and frees its bytes."""
        self._count(source, -1)
        self.change(-freed_bytes, is_small)

    def heavy_work_ended(self) -> None:
        """Counts one request of a heavy source less that is worked on; `change` is to follow."""
        self._heavy_works -= 1

    def _count(self, source: Hashable, more: int) -> None:
        """Counts a reservation more, or less, of this source; it may belong into another line then."""
        self._held[source] += more
        if not self._held[source]:
            del self._held[source]
        waiting = self._waiting.get(source)
        if waiting is not None:
            waiting.stand_in(self._line(source))

    def _line(self, source: Hashable) -> WaitingLine:
        lines = self._heavy if self._is_heavy(source) else self._light
        return lines.have_some if source in self._held else lines.have_none

    def _wait(self, source: Hashable, requests: deque[tuple[Start, int]]) -> _Waiting:
        """Puts a source behind all others of its line."""
        waiting = self._waiting[source] = _Waiting(source, next(self._tickets), self._line(source), requests)
        return waiting

    def _next_line(self) -> WaitingLine | None:
        """Returns the line whose first source may begin next; None: nothing that waits may begin."""
        if self.share.free_bytes < LARGE_ANSWER_BYTES:
            return None  # Nor may a small one: or they would take what a large one waits for.
        may_begin, heavy = self._light.in_use(), self._heavy.in_use()
        if heavy and (self._heavy_works < self._heavy_max or self._heavy_passed >= HEAVY_PASSED_MAX):
            may_begin += heavy
        if not may_begin:
            return None
        oldest = min(may_begin, key=attrgetter("first"))
        chosen = oldest if self._passed >= PASSED_MAX else may_begin[0]
        self._passed = 0 if chosen is oldest else self._passed + 1
        self._heavy_passed = 0 if not heavy or chosen in heavy else self._heavy_passed + 1
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
        requests = self._waiting.pop(source).requests
        start, size_bytes = requests.popleft()
        self._count(source, 1)
        if requests:
            self._wait(source, requests)
        self.share.hold(size_bytes)
        of_heavy = line in (self._heavy.have_none, self._heavy.have_some)
        self._heavy_works += of_heavy
        start(Reservation(self, source, size_bytes, of_heavy=of_heavy))
