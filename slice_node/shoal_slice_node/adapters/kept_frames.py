"""Parses the frames of sessions, and bounds those that wait for their turns: parsed, a frame takes up to 45 times its
bytes.

While there is no room, frames wait as they came. Belongs here: parsing, and what is kept. Not here: what the frames
request (session_work), large frames before they are parsed (frame_room).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.core.checking.session_frames import (
    kept_bytes,
    kept_bytes_most,
    kept_bytes_of_change,
    parse_request,
)
from shoal_slice_node.core.verbs.changes import Checked, parse_change


class Kept:
    """Keeps room for one frame until `free`; or until nothing keeps the frame any more, as when its session ends while
    it waits. Whatever keeps the frame must hold this."""

    __slots__ = ("_room", "bytes")

    def __init__(self, room: FrameRoom, size_bytes: int) -> None:
        """The room is taken already."""
        self._room = room
        self.bytes = size_bytes

    def settle(self, size_bytes: int) -> None:
        """Keeps so much instead."""
        if size_bytes != self.bytes:
            freed, self.bytes = self.bytes - size_bytes, size_bytes
            self._room.give(freed)

    def free(self) -> None:
        """Gives the room back. May be called more than once."""
        self.settle(0)

    def __del__(self) -> None:
        """Gives the room back, in a later turn of the loop: garbage is collected by whichever thread meets it."""
        if self.bytes:
            self._room.give_later(self.bytes)


@dataclass(slots=True)
class Frame:
    """Holds a parsed frame. `data`: its change; b"" for other kinds. `checked`: the change in its parsed form; the
    error if it is refused; None for other kinds. `bytes`: about what all of it takes."""

    request: wire.SessionRequest
    kind: str
    data: bytes
    checked: Checked | ShoalError | None
    bytes: int


class KeptFrames:
    """Bounds the frames of all sessions that are parsed and wait. `limit_bytes`: what they may take, or there is one
    larger frame alone."""

    def __init__(self, limit_bytes: int) -> None:
        self.room = FrameRoom(limit_bytes)

    async def parsed(
        self, data: bytes, connection: Hashable, step_ended: Callable[[float], None]
    ) -> tuple[Frame, Kept, float]:
        """Parses a frame once there is room for it. Returns it, what keeps its room, and when the last step began: it
        goes on with what the frame requests. `step_ended` is told when each step before it began.

        Raises Malformed, TooLarge for what is no frame, ResourceExhausted if too much waits.
        """
        kept = await self._most(data, connection) if self.room.crowded else None
        while True:
            began = time.perf_counter()
            try:
                frame = parse_frame(data)
            except ShoalError:
                if kept is not None:
                    kept.free()
                raise
            if kept is None and self.room.take_now(frame.bytes):
                kept = Kept(self.room, frame.bytes)
            if kept is not None:
                kept.settle(frame.bytes)
                return frame, kept, began
            del frame  # Its bytes are much less.
            step_ended(began)
            kept = await self._most(data, connection)

    async def _most(self, data: bytes, connection: Hashable) -> Kept:
        """Waits for room for whatever `data` may become."""
        most = kept_bytes_most(len(data))
        await self.room.take(most, connection, len(data))
        return Kept(self.room, most)


def parse_frame(data: bytes) -> Frame:
    """Parses a frame, and checks its change. Raises Malformed, TooLarge for what is no frame."""
    request = parse_request(data)
    kind = request.WhichOneof("frame") or ""
    if kind != "change":
        return Frame(request, kind, b"", None, kept_bytes(request))
    change = request.change
    request.ClearField("change")  # Each look at it would be a copy.
    try:
        checked = parse_change(change)
    except ShoalError as error:
        return Frame(request, kind, change, error, kept_bytes_of_change(len(change), 0))
    return Frame(request, kind, change, checked, kept_bytes_of_change(len(change), checked.operations))
