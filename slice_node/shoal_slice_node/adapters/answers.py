"""Keeps one session's answers: those still owed to its frames, those that wait, and those that are being written.

All of them count against the answers' share of memory. What waits is what is charged: an answer is serialized when it
comes, as its message takes up to 200 times its bytes, and answers are joined to a response by their bytes. A session is
not read any further while it does not take its answers, or, if that share is full, while any of its frames is still
unanswered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import (
    ANSWER_BYTES,
    ANSWER_HEAD_BYTES_MAX,
    ANSWERS_HELD_FLOOR_BYTES,
    ANSWERS_PENDING_MAX,
    RESERVED_ANSWER_BYTES,
)

_TAG: Final = wire.SessionResponse.DESCRIPTOR.fields_by_name["answers"].number << 3 | 2
_HEADS: Final = [bytes((_TAG, size_bytes)) for size_bytes in range(0x80)]
"""What stands before an answer in a response: the field's tag, and the answer's size as a varint."""


def _head(size_bytes: int) -> bytes:
    if size_bytes < 0x80:
        return _HEADS[size_bytes]
    head = bytearray((_TAG,))
    while size_bytes >= 0x80:
        head.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    head.append(size_bytes)
    return bytes(head)


class Answers:
    """Keeps the answers of one session. `room`: set while another frame may be read. `wake` is called when there is
    something to write."""

    def __init__(self, shared: AnswerRoom, wake: Callable[[], None]) -> None:
        self._shared = shared
        self._wake = wake
        self._waiting: deque[tuple[bytes, int, Reservation | None, Callable[[], None] | None]] = deque()
        """The answers that wait, serialized, each with its weight, its reservation if it is a large one, and what is
        called when it is taken."""
        self._owed = 0
        self._counted_bytes = 0
        """What the share counts of answers without a reservation: those that are prepared, wait or are being
        written."""
        self._filled_bytes = 0
        """What answers with a reservation take that wait or are being written."""
        self._written_bytes = 0
        """The part of `_counted_bytes` that is being written."""
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
        """Returns the bytes of the answers that are prepared, wait or are being written."""
        return self._counted_bytes + self._filled_bytes

    def brief_bytes(self) -> int:
        """Returns the bytes that they have in the room for brief answers."""
        return sum(one.bytes for one in self._reservations if one.is_brief)

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
        data = answer.SerializeToString()
        if reserved is None:
            self._count(len(data) + ANSWER_BYTES)
        else:
            reserved.settle(len(data) + RESERVED_ANSWER_BYTES)
            self._filled_bytes += reserved.bytes
        self._waiting.append((data, weight, reserved, on_left))
        self._look()
        self._wake()

    def prepare(self, answer: wire.Answer) -> bytes:
        """Counts an answer from now on that is added later, and returns it serialized: `add_prepared` or
        `drop_prepared` must follow."""
        data = answer.SerializeToString()
        if not self._closed:
            self._count(len(data) + ANSWER_BYTES)
            self._look()
        return data

    def add_prepared(self, data: bytes, weight: int) -> None:
        """Adds what `prepare` returned; see `add`."""
        if self._closed:
            return
        self._waiting.append((data, weight, None, None))
        self._wake()

    def drop_prepared(self, data: bytes) -> None:
        """Counts what `prepare` returned no more: another answer is added in its place."""
        if not self._closed:
            self._count(-len(data) - ANSWER_BYTES)

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
            if reserved is not None:
                self._reservations.discard(reserved)  # It was released, and this one comes in its place.
            reserved = reservation
            self._reservations.add(reservation)
            return True

        return (lambda answer: self.add(answer, weight, reserved, on_left)), keep

    def take(self, response: list[bytes], room_bytes: int) -> int:
        """Moves the answers that fit into `response`, the parts of a serialized SessionResponse, but at least one if
        any waits. Returns the bytes that are left of `room_bytes`."""
        waiting, begun_bytes = self._waiting, room_bytes
        if not waiting:
            return room_bytes
        while waiting and (room_bytes == begun_bytes or len(waiting[0][0]) + ANSWER_HEAD_BYTES_MAX <= room_bytes):
            data, weight, reserved, on_left = waiting.popleft()
            size_bytes = len(data)
            self._owed -= weight
            if reserved is None:
                self._written_bytes += size_bytes + ANSWER_BYTES
            else:
                self._written.append(reserved)
            room_bytes -= size_bytes + ANSWER_HEAD_BYTES_MAX
            response.append(_head(size_bytes))
            response.append(data)
            if on_left is not None:
                on_left()
        self._look()
        return room_bytes

    def written(self) -> None:
        """Frees the memory of the answers that `take` moved; called when the transport has taken them."""
        if not (self._written_bytes or self._written):
            return
        freed, self._written_bytes = self._written_bytes, 0
        self._count(-freed)
        while self._written:
            reserved = self._written.pop()
            self._filled_bytes -= reserved.bytes
            self._reservations.discard(reserved)
            reserved.release()
        self._look()

    def close(self) -> None:
        """Frees everything at the session's end. Answers that are still owed are dropped."""
        self._closed = True
        self._waiting.clear()
        self._count(-self._counted_bytes)
        self._filled_bytes = self._written_bytes = 0
        self._written.clear()
        for reservation in self._reservations:
            reservation.release()
        self._reservations.clear()

    def _count(self, by_bytes: int) -> None:
        self._counted_bytes += by_bytes
        self._shared.change(by_bytes)

    def _look(self, is_back: bool = False) -> None:
        left_bytes = self._shared.share.free_bytes
        owed_max = ANSWERS_PENDING_MAX if left_bytes > 0 else 0
        held_max = max(ANSWERS_HELD_FLOOR_BYTES, left_bytes // 4)
        if self._owed > owed_max or self.held_bytes() > held_max:
            self.room.clear()
            if self._owed <= ANSWERS_PENDING_MAX and not self._closed:
                self._shared.shut(self._look_again)  # Others may let go of the room, while its own answers wait.
        elif is_back or self._owed <= owed_max // 2:
            self.room.set()

    def _look_again(self) -> None:
        """Looks whether there is room again: it was not read for want of that, and not as it is owed too much."""
        self._look(is_back=True)
