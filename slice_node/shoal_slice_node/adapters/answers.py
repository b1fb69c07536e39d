"""Keeps one session's answers: those still owed to its frames, those that wait, and those that are being written.

All of them count against the answers' share of memory. A session is not read any further while it does not take its
answers, or, if that share is full, while any of its frames is still unanswered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import ANSWERS_HELD_FLOOR_BYTES, ANSWERS_PENDING_MAX


class Answers:
    """Keeps the answers of one session. `room`: set while another frame may be read. `wake` is called when there is
    something to write."""

    def __init__(self, shared: AnswerRoom, wake: Callable[[], None]) -> None:
        self._shared = shared
        self._wake = wake
        self._waiting: deque[tuple[wire.Answer, int, int, Reservation | None, Callable[[], None] | None]] = deque()
        """The answers that wait, each with its weight, its size in bytes, its reservation if it is a large one, and
        what is called when it is taken."""
        self._owed = 0
        self._waiting_bytes = 0
        self._written_bytes = 0
        self._written: list[Reservation] = []
        """The reservations of the answers that are being written."""
        self._reservations: set[Reservation] = set()
        """The reservations of large answers that the transport has not taken yet."""
        self._closed = False
        self.room = asyncio.Event()
        self.room.set()

    def __bool__(self) -> bool:
        """Returns whether there is something to write."""
        return bool(self._waiting)

    @property
    def owed(self) -> int:
        """Returns the total weight of the frames that have no answer on its way yet."""
        return self._owed

    def held_bytes(self) -> int:
        """Returns the bytes of the answers that wait or are being written."""
        reserved_bytes = sum(one.bytes for one in self._written) if self._written else 0
        return self._waiting_bytes + self._written_bytes + reserved_bytes

    def expect(self, weight: int) -> None:
        """Adds `weight` to what is owed: a frame was read, or it turned out to weigh more than was counted for it."""
        self._owed += weight
        self._look()

    def add(
        self,
        answer: wire.Answer,
        weight: int,
        reserved: Reservation | None = None,
        on_left: Callable[[], None] | None = None,
    ) -> None:
        """Adds an answer to be written. `weight`: what was counted for its frame. `reserved`: the reservation that the
        answer fills. `on_left`: called when it is taken to be written."""
        if self._closed:
            return
        size_bytes = answer.ByteSize()
        self._waiting.append((answer, weight, size_bytes, reserved, on_left))
        self._waiting_bytes += size_bytes
        if reserved is None:
            self._shared.change(size_bytes)
        else:
            reserved.settle(size_bytes)
        self._look()
        self._wake()

    def large(
        self, weight: int, on_left: Callable[[], None] | None = None
    ) -> tuple[Callable[[wire.Answer], None], Callable[[Reservation], bool]]:
        """Returns two functions for one large answer: the first takes the answer, the second takes its reservation and
        returns False if the session has ended. They are not looked up by the frame's sequence, since a client may use
        one sequence twice. `on_left`: see `add`."""
        reserved: Reservation | None = None

        def keep(reservation: Reservation) -> bool:
            nonlocal reserved
            if self._closed:
                reservation.release()
                return False
            reserved = reservation
            self._reservations.add(reservation)
            return True

        return (lambda answer: self.add(answer, weight, reserved, on_left)), keep

    def take(self, response: wire.SessionResponse, room_bytes: int) -> int:
        """Moves the answers that fit into `response`, but at least one if any waits. Returns the bytes that are left
        of `room_bytes`."""
        waiting, begun_bytes = self._waiting, room_bytes
        if not waiting:
            return room_bytes
        while waiting and (room_bytes == begun_bytes or waiting[0][2] + 8 <= room_bytes):
            answer, weight, size_bytes, reserved, on_left = waiting.popleft()
            self._owed -= weight
            self._waiting_bytes -= size_bytes
            if reserved is None:
                self._written_bytes += size_bytes
            else:
                self._written.append(reserved)
            room_bytes -= size_bytes + 8
            response.answers.append(answer)
            if on_left is not None:
                on_left()
        self._look()
        return room_bytes

    def written(self) -> None:
        """Frees the memory of the answers that `take` moved; called when the transport has taken them."""
        if not (self._written_bytes or self._written):
            return
        freed, self._written_bytes = self._written_bytes, 0
        self._shared.change(-freed)
        while self._written:
            reserved = self._written.pop()
            self._reservations.discard(reserved)
            reserved.release()
        self._look()

    def close(self) -> None:
        """Frees everything at the session's end. Answers that are still owed are dropped."""
        self._closed = True
        small = sum(size_bytes for _, _, size_bytes, reserved, _ in self._waiting if reserved is None)
        self._waiting.clear()
        self._shared.change(-small - self._written_bytes)
        self._waiting_bytes = self._written_bytes = 0
        for reservation in self._reservations:
            reservation.release()
        self._reservations.clear()

    def _look(self) -> None:
        left_bytes = self._shared.share.free_bytes
        owed_max = ANSWERS_PENDING_MAX if left_bytes > 0 else 0
        held_max = max(ANSWERS_HELD_FLOOR_BYTES, left_bytes // 4)
        if self._owed > owed_max or self.held_bytes() > held_max:
            self.room.clear()
        elif self._owed <= owed_max // 2:
            self.room.set()
