"""Parses the frames of sessions, and bounds those that wait for their turns: parsed, a frame takes up to 45 times its
bytes.

While there is no room, frames wait as they came. Small ones wait for room in their connection's own part, which those
before them free; where all parts together are used up, they take their turn among the others. Pulls, and
describes whose answers may be large, have a room of their own, half of it in parts of connections: they keep it until
their answers have room, which a client that reads nothing, or asks for what takes long, may hold up.

Belongs here: parsing, and what is kept. Not here: what the frames request (session_work).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom, described_bytes
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import (
    SMALL_ANSWER_BYTES,
    SMALL_FRAME_BYTES,
    SMALL_FRAME_KEPT_BYTES,
    SMALL_FRAMES_BYTES_MIN,
    SMALL_FRAMES_PART,
)
from shoal_slice_node.core.checking.session_frames import (
    is_read,
    kept_bytes,
    kept_bytes_most,
    kept_bytes_of_change,
    parse_request,
)
from shoal_slice_node.core.verbs.changes import Checked, parse_change


class Room(Protocol):
    """Takes back the room of a frame."""

    def give(self, size_bytes: int) -> None: ...

    def give_later(self, size_bytes: int) -> None:
        """Does as `give`, soon. May be called by any thread."""
        ...


class Kept:
    """Keeps room for one frame until `free`; or until nothing keeps the frame any more, as when its session ends while
    it waits. Whatever keeps the frame must hold this."""

    __slots__ = ("_room", "bytes")

    def __init__(self, room: Room, size_bytes: int) -> None:
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


class SmallFrames:
    """Keeps how much of its own part each connection uses: small frames need no turn among the frames of others, so
    that sessions with small ones do not wait behind publishers of many large ones. `limit_bytes`: what all parts may
    take together, since a client may open any number of connections. A part shrinks with what is free of it, so that
    few connections leave others theirs. The last frame of a part may exceed it."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._used: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Maps a connection to the frames that wait until something of its part is freed. No line is empty."""

    @property
    def all_used(self) -> bool:
        """Returns whether all parts together are used up."""
        return self.used_bytes >= self._limit_bytes

    def has_room(self, connection: Hashable) -> bool:
        """Returns whether the connection may keep one more frame."""
        return not (self.all_used or self.is_used_up(connection))

    async def turn(self, connection: Hashable) -> None:
        """Waits while the connection's part is used up. `end_turn` must be called after it."""
        if connection not in self._waiting and not self.is_used_up(connection):
            return
        freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(connection, deque()).append(freed)
        try:
            await freed
        except asyncio.CancelledError:
            self.end_turn(connection)  # Perhaps this one had been given its turn already.
            raise

    def end_turn(self, connection: Hashable) -> None:
        """Gives the connection's next frame its turn, if there is room in its part."""
        line = self._waiting.get(connection)
        while line and not self.is_used_up(connection):
            freed = line.popleft()
            if not freed.done():
                freed.set_result(None)
                break
        if line is not None and not line:
            del self._waiting[connection]

    def kept(self, connection: Hashable, size_bytes: int) -> Kept:
        """Takes room of a connection's part, and returns what keeps it."""
        self._used[connection] = self._used.get(connection, 0) + size_bytes
        self.used_bytes += size_bytes
        return Kept(_OfConnection(self, connection, asyncio.get_running_loop()), size_bytes)

    def give(self, connection: Hashable, size_bytes: int) -> None:
        """Notes that a connection uses so much less."""
        self.used_bytes -= size_bytes
        left = self._used.get(connection, 0) - size_bytes
        if left > 0:
            self._used[connection] = left
        else:
            self._used.pop(connection, None)
        self.end_turn(connection)

    def is_used_up(self, connection: Hashable) -> bool:
        """Returns whether the connection's part is used up."""
        part_bytes = (self._limit_bytes - self.used_bytes) // SMALL_FRAMES_PART
        return self._used.get(connection, 0) >= max(SMALL_FRAMES_BYTES_MIN, part_bytes)


class _OfConnection:
    """Takes back room of a connection's own part (SmallFrames)."""

    __slots__ = ("_connection", "_loop", "_small")

    def __init__(self, small: SmallFrames, connection: Hashable, loop: asyncio.AbstractEventLoop) -> None:
        self._small = small
        self._connection = connection
        self._loop = loop

    def give(self, size_bytes: int) -> None:
        """See Room."""
        self._small.give(self._connection, size_bytes)

    def give_later(self, size_bytes: int) -> None:
        """See Room."""
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self.give, size_bytes)


class KeptFrames:
    """Bounds the frames of all sessions that are parsed and wait. `reads` and `small_reads`: pulls and describes, which
    may take half of `reads_bytes` each: small ones, of which a connection has not many, need not stand among all.
    `others`: all others, which may take `others_bytes`; or there is one larger frame alone. `small`: what connections
    may have besides, in all `small_bytes`. `large`: bounds large frames that are parsed. `answers`: where pulls and
    describes wait for room for their answers."""

    def __init__(
        self, small_bytes: int, reads_bytes: int, others_bytes: int, large: FrameRoom, answers: AnswerRoom
    ) -> None:
        self.small = SmallFrames(small_bytes)
        self.small_reads = SmallFrames(reads_bytes // 2)
        self.reads, self.others = FrameRoom(reads_bytes - reads_bytes // 2), FrameRoom(others_bytes)
        self._large = large
        self._answers = answers

    async def parsed(
        self, data: bytes, connection: Hashable, large_bytes: int, step_ended: Callable[[float], None]
    ) -> tuple[Frame, Kept, float]:
        """Parses a frame once there is room for it. Returns it, what keeps its room, and when the last step began: it
        goes on with what the frame requests. `large_bytes`: what it takes of the room for large frames, which the
        caller gives back; 0: it is none. `step_ended` is told when each step before it began.

        Raises Malformed, TooLarge for what is no frame, ResourceExhausted if too much waits. Then nothing is taken.
        """
        room = self.reads if is_read(data) else self.others
        if len(data) <= SMALL_FRAME_BYTES and (small := await self._small_parsed(data, room, connection)) is not None:
            frame, kept, began = small
            kept = kept or _kept_now(room, frame)
            if kept is not None:
                return frame, kept, began
            del frame, small
        kept = await _most(room, data, connection) if room.crowded else None
        while True:
            try:
                if large_bytes:
                    await self._large.take(large_bytes, connection)
                began = time.perf_counter()
                frame = self._parsed_or_free(data, large_bytes)
            except BaseException:
                if kept is not None:
                    kept.free()
                raise
            if kept is None:
                kept = _kept_now(room, frame)
            if kept is not None:
                kept.settle(frame.bytes)
                return frame, kept, began
            del frame  # Its bytes are much less.
            if large_bytes:
                self._large.give(large_bytes)
            step_ended(began)
            kept = await _most(room, data, connection)

    async def _small_parsed(
        self, data: bytes, room: FrameRoom, connection: Hashable
    ) -> tuple[Frame, Kept | None, float] | None:
        """Parses a small frame that may have room in its connection's part. Returns it, what keeps its room, and when
        it began to parse. None: it may have none, or, as parsed, is not small."""
        if room is self.reads:
            return self._small_read_parsed(data, connection)
        await self.small.turn(connection)
        try:
            if self.small.all_used:
                return None
            began = time.perf_counter()
            frame = parse_frame(data)
            if frame.bytes > SMALL_FRAME_KEPT_BYTES:
                return frame, None, began
            return frame, self.small.kept(connection, frame.bytes), began
        finally:
            self.small.end_turn(connection)

    def _small_read_parsed(self, data: bytes, connection: Hashable) -> tuple[Frame, Kept | None, float] | None:
        """Does as `_small_parsed` for a pull or a describe, without waiting."""
        if not (self.small.has_room(connection) or self.small_reads.has_room(connection)):
            return None
        began = time.perf_counter()
        frame = parse_frame(data)
        if frame.bytes > SMALL_FRAME_KEPT_BYTES:
            return frame, None, began
        is_short = self._is_small_look(frame) and self.small.has_room(connection)
        part = self.small if is_short else self.small_reads
        return frame, part.kept(connection, frame.bytes) if part.has_room(connection) else None, began

    def _is_small_look(self, frame: Frame) -> bool:
        """Returns whether the frame is a describe whose answer is small and has room: it keeps its own for a moment
        only."""
        is_small = frame.kind == "describe" and described_bytes(frame.request.describe) <= SMALL_ANSWER_BYTES
        return is_small and self._answers.has_room_for_small

    def _parsed_or_free(self, data: bytes, large_bytes: int) -> Frame:
        try:
            return parse_frame(data)
        except ShoalError:
            if large_bytes:
                self._large.give(large_bytes)
            raise


def _kept_now(room: FrameRoom, frame: Frame) -> Kept | None:
    """Returns what keeps the room of a frame; None: it must wait for it."""
    return Kept(room, frame.bytes) if room.take_now(frame.bytes) else None


async def _most(room: FrameRoom, data: bytes, connection: Hashable) -> Kept:
    """Waits for room for whatever `data` may become."""
    most = kept_bytes_most(len(data))
    await room.take(most, connection, len(data))
    return Kept(room, most)


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
        refusal = error.with_traceback(None)  # The traceback has the frame, which has the error: a circle.
        return Frame(request, kind, change, refusal, kept_bytes_of_change(len(change), 0))
    return Frame(request, kind, change, checked, kept_bytes_of_change(len(change), checked.operations))
