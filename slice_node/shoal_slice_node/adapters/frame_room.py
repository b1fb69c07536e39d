"""Room for large frames: they are counted before they are parsed, and parsed one in a turn of the loop.

They have half of what may be pending, so that small frames, however many, do not keep them waiting; first come, first
served. A session waits with one frame at most.
"""

from __future__ import annotations

import asyncio
from collections import deque

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.adapters.limits import UNPARSED_FACTOR


class FrameRoom:
    """`limit_bytes`: of frames that are worked on, or one larger one. `UNPARSED_FACTOR` times as much may wait."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting_bytes = 0
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()
        self._turn: asyncio.Handle | None = None
        self._failure: ShoalError | None = None

    async def take(self, size_bytes: int) -> None:
        """Returns in a turn of the loop in which no other large frame is parsed. Raises ResourceExhausted where too
        much waits already, and what `close` was given."""
        if self._failure is not None:
            raise self._failure
        limit = UNPARSED_FACTOR * self._limit_bytes
        if self._waiting_bytes and self._waiting_bytes + size_bytes > limit:
            raise ResourceExhausted(
                f"large frames of {self._waiting_bytes} bytes wait to be worked on, and this one has {size_bytes};"
                f" the limit is {limit}",
                subject="waiting frames",
                limit=limit,
                value=self._waiting_bytes + size_bytes,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, size_bytes))
        self._waiting_bytes += size_bytes
        self._look()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give(size_bytes)
            raise

    def give(self, size_bytes: int) -> None:
        """It is parsed and refused, or written to the journal."""
        self._used_bytes -= size_bytes
        self._look()

    def close(self, error: ShoalError) -> None:
        """Whoever waits hears of it."""
        self._failure = error
        while self._line:
            turn, size_bytes = self._line.popleft()
            self._waiting_bytes -= size_bytes
            if not turn.done():
                turn.set_exception(error)

    def _look(self) -> None:
        if self._turn is None and self._line and self._fits(self._line[0][1]):
            self._turn = asyncio.get_running_loop().call_soon(self._next)

    def _fits(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._limit_bytes

    def _next(self) -> None:
        self._turn = None
        while self._line and self._fits(self._line[0][1]):
            turn, size_bytes = self._line.popleft()
            self._waiting_bytes -= size_bytes
            if not turn.done():
                self._used_bytes += size_bytes
                turn.set_result(None)
                break
        self._look()
