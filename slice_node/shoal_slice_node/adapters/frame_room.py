"""Bounds frames by what they take: large ones, which are counted before they are parsed, so that one turn of the loop
parses only one; and all frames of sessions once they are parsed, while they wait for their turns (kept_frames).

Each kind has a bound of its own, so that small frames, however many, do not keep large ones waiting: half of what may
be pending for large ones; of the parsed, a quarter for small ones, a quarter for pulls and describes, half for all
others. Connections take turns. Where too much waits, the connection with most of it loses a frame, or, if each
has little, the one that came last. A session has at most one frame waiting.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.adapters.limits import SINGLE_FRAME_PARTS, UNPARSED_FACTOR


class _Waiting(NamedTuple):
    """Describes a frame that waits for `turn`. `size_bytes`: the room that it needs then. `waiting_bytes`: what it
    takes until then."""

    turn: asyncio.Future[None]
    size_bytes: int
    waiting_bytes: int


class FrameRoom:
    """Lets frames in one by one. `limit_bytes`: bounds the frames that are worked on, or there is one larger
    frame alone. `UNPARSED_FACTOR` times as much may wait."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting_bytes = 0
        self._lines: OrderedDict[Hashable, deque[_Waiting]] = OrderedDict()
        """The frames that wait, by connection; the first connection has the next turn. No line is empty."""
        self._turn: asyncio.Handle | None = None
        self._failure: ShoalError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of all calls but `give_later`."""

    @property
    def crowded(self) -> bool:
        """Returns whether frames wait for room."""
        return bool(self._lines)

    async def take(self, size_bytes: int, connection: Hashable, waiting_bytes: int | None = None) -> None:
        """Waits for a turn of the loop in which no other frame of this room is parsed. `waiting_bytes`: what the frame
        takes while it waits; None: as much as later. Raises ResourceExhausted if too much waits, at once or later while
        it waits; and the error that `close` was given."""
        if self._failure is not None:
            raise self._failure
        self._loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = self._loop.create_future()
        waiting = _Waiting(turn, size_bytes, size_bytes if waiting_bytes is None else waiting_bytes)
        self._lines.setdefault(connection, deque()).append(waiting)
        self._waiting_bytes += waiting.waiting_bytes
        self._bound()
        self._look()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(size_bytes)
            else:
                self._leave(connection, turn)
            raise

    def take_now(self, size_bytes: int) -> bool:
        """Takes room at once, if nothing waits for it and it fits. Returns whether it did."""
        fits = not self._lines and self._fits(size_bytes)
        if fits:
            self._loop = asyncio.get_running_loop()
            self._used_bytes += size_bytes
        return fits

    def give(self, size_bytes: int) -> None:
        """Gives a frame's bytes back: nothing of it waits any more."""
        self._used_bytes -= size_bytes
        self._look()

    def give_later(self, size_bytes: int) -> None:
        """Gives a frame's bytes back soon. May be called by any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self.give, size_bytes)

    def close(self, error: ShoalError) -> None:
        """Fails all frames that wait, and all later ones, with `error`."""
        self._failure = error
        for line in self._lines.values():
            for turn, _, _ in line:
                if not turn.done():
                    turn.set_exception(error)

    def _bound(self) -> None:
        """Fails frames while too much waits: the last one of the connection that has most bytes waiting; but the one
        that came last, if that connection has little (SINGLE_FRAME_PARTS). So one frame that is a little larger than
        those of others is not always the one that fails."""
        limit = UNPARSED_FACTOR * self._limit_bytes
        while self._waiting_bytes > limit and sum(map(len, self._lines.values())) > 1:
            error = ResourceExhausted(
                f"frames of {self._waiting_bytes} bytes wait to be worked on; the limit is {limit}",
                subject="waiting frames",
                limit=limit,
                value=self._waiting_bytes,
            )
            failing = max(self._lines, key=self._waiting_of)
            if len(self._lines[failing]) == 1 and self._waiting_of(failing) * SINGLE_FRAME_PARTS <= limit:
                failing = next(reversed(self._lines))
            turn, _, waiting_bytes = self._lines[failing].pop()
            self._waiting_bytes -= waiting_bytes
            if not self._lines[failing]:
                del self._lines[failing]
            if not turn.done():
                turn.set_exception(error)

    def _waiting_of(self, connection: Hashable) -> int:
        return sum(waiting.waiting_bytes for waiting in self._lines[connection])

    def _leave(self, connection: Hashable, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(connection, deque())
        for waiting in line:
            if waiting.turn is turn:
                line.remove(waiting)
                self._waiting_bytes -= waiting.waiting_bytes
                break
        if not line:
            self._lines.pop(connection, None)
        self._look()

    def _look(self) -> None:
        if self._turn is None and self._lines and self._fits(self._first().size_bytes):
            self._turn = asyncio.get_running_loop().call_soon(self._next)

    def _first(self) -> _Waiting:
        return next(iter(self._lines.values()))[0]

    def _fits(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._limit_bytes

    def _next(self) -> None:
        """Gives the next connection its turn. A frame whose wait has ended already is passed over."""
        self._turn = None
        if not self._lines or not self._fits(self._first().size_bytes):
            return
        connection, line = self._lines.popitem(last=False)
        turn, size_bytes, waiting_bytes = line.popleft()
        self._waiting_bytes -= waiting_bytes
        if line:
            self._lines[connection] = line
        if not turn.done():
            self._used_bytes += size_bytes
            turn.set_result(None)
        self._look()
