"""Offers what waiting calls need: measures what is left of a deadline, bounds what is under way.

`Room` is where backpressure begins: a call that finds it full waits in line, or is refused. Not here: anything of the
wire.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from shoal.core.refusals import deadline_exceeded
from shoal.core.waiters import fail_waiter
from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, ShoalError


def remaining_s(deadline: float, what: str) -> float:
    """Returns the seconds until `deadline` (event loop time). Raises DeadlineExceeded once it is over."""
    left_s = deadline - asyncio.get_running_loop().time()
    if left_s <= 0:
        raise deadline_exceeded(what)
    return left_s


class Room:
    """Gives out a bounded number of bytes, in order of asking. One item may exceed the bound if it is alone."""

    def __init__(self, name: str, bytes_max: int) -> None:
        self._name = name
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        """The calls that wait. Each is a task of the application, so the tasks that it starts bound their number."""
        self._closed: ShoalError | None = None

    def take_nowait(self, count_bytes: int) -> None:
        """Takes room. Raises ResourceExhausted when full."""
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        if self._line or not self._fits(count_bytes):
            raise ResourceExhausted(
                f"{self._name}: {self._used_bytes} bytes wait for answers; the limit is {self._bytes_max}",
                subject=self._name,
                limit=self._bytes_max,
                value=self._used_bytes + count_bytes,
            )
        self._used_bytes += count_bytes

    async def take(self, count_bytes: int, deadline: float) -> None:
        """Waits for room. Raises DeadlineExceeded (nothing was sent)."""
        if not self._line and self._fits(count_bytes):
            self._used_bytes += count_bytes
            return
        if self._closed is not None:
            raise self._closed.with_traceback(None)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count_bytes, future)
        self._line.append(entry)
        try:
            async with asyncio.timeout_at(deadline):
                await future
        except BaseException as error:
            self._leave(entry)
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"{self._name}: no room before the call's deadline; nothing was sent") from None
            raise

    def give(self, count_bytes: int) -> None:
        """Gives back room that was taken."""
        self._used_bytes -= count_bytes
        assert self._used_bytes >= 0, "room given back twice"
        self._admit()

    def close(self, error: ShoalError) -> None:
        """Refuses all calls that wait, and all later ones."""
        self._closed = error
        while self._line:
            fail_waiter(self._line.popleft()[1], error)

    def _fits(self, count_bytes: int) -> bool:
        return self._closed is None and (self._used_bytes == 0 or self._used_bytes + count_bytes <= self._bytes_max)

    def _admit(self) -> None:
        while self._line and (self._line[0][1].done() or self._fits(self._line[0][0])):
            count_bytes, future = self._line.popleft()
            if not future.done():
                self._used_bytes += count_bytes
                future.set_result(None)

    def _leave(self, entry: tuple[int, asyncio.Future[None]]) -> None:
        count_bytes, future = entry
        if future.done() and not future.cancelled() and future.exception() is None:
            self.give(count_bytes)
            return
        with contextlib.suppress(ValueError):
            self._line.remove(entry)
        self._admit()
