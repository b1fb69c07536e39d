"""One session's answers: those that its frames are still owed, those that wait, and those that are being written.

All of them are in the share of memory that answers have. A session that does not take its own is not read any further;
where the share is full, one whose frame is not answered yet is not either.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import ANSWERS_HELD_FLOOR_BYTES, ANSWERS_PENDING_MAX


class Answers:
    """`room`: set while another frame may be read. `wake`: to be called when there is something to write."""

    def __init__(self, shared: AnswerRoom, wake: Callable[[], None]) -> None:
        self._shared = shared
        self._wake = wake
        self._waiting: deque[tuple[wire.Answer, int, int, Reservation | None]] = deque()
        """Each with its weight, its bytes, and its reservation if it is a large one."""
        self._owed = 0
        self._waiting_bytes = 0
        self._written_bytes = 0
        self._written: list[Reservation] = []
        """Of the answers that are being written."""
        self._reservations: set[Reservation] = set()
        """Of large answers that are not written yet."""
        self._closed = False
        self.room = asyncio.Event()
        self.room.set()

    def __bool__(self) -> bool:
        """Whether there is something to write."""
        return bool(self._waiting)

    @property
    def owed(self) -> int:
        """Weight of the frames whose answers are not yet on their way."""
        return self._owed

    def held_bytes(self) -> int:
        """What waits and what is being written."""
        return self._waiting_bytes + self._written_bytes + sum(one.bytes for one in self._written)

    def expect(self, weight: int) -> None:
        """A frame was read, or weighs so much more than was thought."""
        self._owed += weight
        self._look()

    def add(self, answer: wire.Answer, weight: int, reserved: Reservation | None = None) -> None:
        """`weight`: as its frame was counted. `reserved`: the room that it fills."""
        if self._closed:
            return
        size_bytes = answer.ByteSize()
        self._waiting.append((answer, weight, size_bytes, reserved))
        self._waiting_bytes += size_bytes
        if reserved is None:
            self._shared.change(size_bytes)
        else:
            reserved.settle(size_bytes)
        self._look()
        self._wake()

    def large(self, weight: int) -> tuple[Callable[[wire.Answer], None], Callable[[Reservation], bool]]:
        """What takes one large answer, and what takes its reservation unless the session has ended. Not by the frame's
        sequence, which a client may use twice."""
        reserved: Reservation | None = None

        def keep(reservation: Reservation) -> bool:
            nonlocal reserved
            if self._closed:
                reservation.release()
                return False
            reserved = reservation
            self._reservations.add(reservation)
            return True

        return (lambda answer: self.add(answer, weight, reserved)), keep

    def take(self, response: wire.SessionResponse, room_bytes: int) -> int:
        """Moves what fits, but one at least, into a response. Returns the room that is left."""
        waiting, begun_bytes = self._waiting, room_bytes
        while waiting and (room_bytes == begun_bytes or waiting[0][2] + 8 <= room_bytes):
            answer, weight, size_bytes, reserved = waiting.popleft()
            self._owed -= weight
            self._waiting_bytes -= size_bytes
            if reserved is None:
                self._written_bytes += size_bytes
            else:
                self._written.append(reserved)
            room_bytes -= size_bytes + 8
            response.answers.append(answer)
        self._look()
        return room_bytes

    def written(self) -> None:
        """The transport has what was taken."""
        freed, self._written_bytes = self._written_bytes, 0
        self._shared.change(-freed)
        while self._written:
            reserved = self._written.pop()
            self._reservations.discard(reserved)
            reserved.release()
        self._look()

    def close(self) -> None:
        """The session ends: what is still owed is answered to nobody."""
        self._closed = True
        small = sum(size_bytes for _, _, size_bytes, reserved in self._waiting if reserved is None)
        self._waiting.clear()
        self._shared.change(-small - self._written_bytes)
        self._waiting_bytes = self._written_bytes = 0
        for reservation in self._reservations:
            reservation.release()
        self._reservations.clear()

    def _look(self) -> None:
        left_bytes = self._shared.share.left_bytes
        owed_max = ANSWERS_PENDING_MAX if left_bytes > 0 else 0
        held_max = max(ANSWERS_HELD_FLOOR_BYTES, left_bytes // 4)
        if self._owed > owed_max or self.held_bytes() > held_max:
            self.room.clear()
        elif self._owed <= owed_max // 2:
            self.room.set()
