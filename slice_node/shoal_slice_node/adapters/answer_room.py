"""Room for large answers: pulls, describes and lists begin when their answer will fit the memory that answers share.

Each reserves the largest size at first, and keeps its real one once it is known, until the client has taken it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shoal_slice_node.adapters.limits import LARGE_ANSWER_BYTES
from shoal_slice_node.core.dispatch.shares import Share


class Reservation:
    """Bytes of one answer. `release` may be called again."""

    __slots__ = ("_room", "bytes")

    def __init__(self, room: AnswerRoom) -> None:
        self._room = room
        self.bytes = LARGE_ANSWER_BYTES

    def settle(self, size_bytes: int) -> None:
        """The answer is so large."""
        if self.bytes:
            self._room.change(size_bytes - self.bytes)
            self.bytes = size_bytes

    def release(self) -> None:
        """The answer is gone."""
        if self.bytes:
            freed, self.bytes = self.bytes, 0
            self._room.change(-freed)


class AnswerRoom:
    """First come, first served."""

    def __init__(self, limit_bytes: int) -> None:
        self.share = Share("answers", max(limit_bytes, LARGE_ANSWER_BYTES))
        self._line: deque[Callable[[Reservation], None]] = deque()
        self._admitting = False

    def reserve(self, start: Callable[[Reservation], None]) -> None:
        """Calls `start` as soon as there is room, which may be at once."""
        self._line.append(start)
        self._admit()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._line)

    async def reserved(self) -> Reservation:
        """The same, to be awaited."""
        done: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()

        def start(reservation: Reservation) -> None:
            if done.done():
                reservation.release()
            else:
                done.set_result(reservation)

        self.reserve(start)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled():
                done.result().release()  # It came, and who waited was cancelled before hearing of it.
            raise

    def change(self, by_bytes: int) -> None:
        self.share.used_bytes += by_bytes
        if by_bytes < 0:
            self._admit()

    def _admit(self) -> None:
        """Who is admitted may be gone and release at once, which comes back here: the loop under way sees to it."""
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._line and self.share.left_bytes >= LARGE_ANSWER_BYTES:
                start = self._line.popleft()
                reservation = Reservation(self)
                self.share.used_bytes += reservation.bytes
                start(reservation)
        finally:
            self._admitting = False
