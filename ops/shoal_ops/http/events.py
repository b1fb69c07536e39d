"""Server-sent events: one stream of a queue, written as fast as its reader takes it and no faster.

Every message is `id: key+offset` (a live message has none), `event: message`, `data:` one line of JSON. An `event: gap`
tells of messages that the queue does not get any more. A stream that ends because its queue was dropped, taken over or
refused says so in a last `event: problem`.
The queue itself remembers its position:
messages that were not acked are sent again to the next stream, so Last-Event-ID is not needed.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import shoal
from shoal_contract.errors import ShoalError
from shoal_ops.http import limits, messages, names
from shoal_ops.http.callers import until_gone
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.push import Batch, Item, Push, Stream
from shoal_runtime.http import problem
from shoal_runtime.tasks import Tasks

MEDIA_TYPE: Final = "text/event-stream"
_HEARTBEAT: Final = b": nothing new\n\n"


class EventResponse(Response):
    """Writes an open stream to its reader, and closes it at the end."""

    media_type = MEDIA_TYPE

    def __init__(self, push: Push, stream: Stream, metrics: Metrics, auto_ack: bool) -> None:
        super().__init__()
        self._push = push
        self._stream = stream
        self._metrics = metrics
        self._auto_ack = auto_ack
        self._unacked: deque[tuple[float, Batch]] = deque()
        """With auto ack: the messages written, and when. Bounded by the stream's window, and counted as held by the
        stream."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with Tasks("event stream") as tasks:
                gone = tasks.start("gone", self._until_gone(receive))
                writing = tasks.start("write", self._write(send))
                ended = tasks.start("ended", self._stream.until_ended())
                await asyncio.wait([gone, writing, ended], return_when=asyncio.FIRST_COMPLETED)
                if not gone.done():
                    # A reader that still reads is told why. A reader that does not is not waited for.
                    await asyncio.wait([writing], timeout=limits.LAST_WORDS_S)
        finally:
            if self._stream.ended:
                self._metrics.streams_ended.labels(self._stream.ended).inc()
            await self._push.close(self._stream)

    async def _until_gone(self, receive: Receive) -> None:
        """Waits until the reader has left, and notes it at once: its next stream may begin before this one ends."""
        await until_gone(receive)
        self._stream.left = True

    async def _write(self, send: Send) -> None:
        """Writes events until the stream is ended from this side. A reader that stalls or is gone is not an error
        here."""
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        part = f": queue {names.encoded(self._stream.queue)}\nretry: {limits.RECONNECT_MS}\n\n".encode()
        batch = Batch()
        try:
            while True:
                async with asyncio.timeout(limits.STALL_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                self._written(batch)
                # Released while there is nothing to write: the connection itself holds what its reader has not taken.
                part, batch = b"", Batch()
                batch = await self._stream.next(limits.AUTO_ACK_HOLD_S if self._unacked else limits.HEARTBEAT_S)
                if self._stream.ended:
                    break
                part = b"".join(map(event, batch)) or (b"" if self._unacked else _HEARTBEAT)
        except TimeoutError:
            self._stream.end("stalled")
            return
        except OSError:
            return
        why = b"" if self._stream.problem is None else problem_event(self._stream.problem)
        await send({"type": "http.response.body", "body": why + b": " + self._stream.ended.encode() + b"\n\n"})

    def _written(self, batch: Batch) -> None:
        """Counts a batch as written. With auto ack, messages stay held, and count as held, for AUTO_ACK_HOLD_S; then
        they are acked."""
        now = asyncio.get_running_loop().time()
        self._metrics.pushed.inc(sum(not isinstance(one, shoal.Gap) for one in batch))
        if batch and self._auto_ack:
            self._unacked.append((now, batch))
        elif batch:
            self._stream.written(batch)
        while self._unacked and self._unacked[0][0] <= now - limits.AUTO_ACK_HOLD_S:
            done = self._unacked.popleft()[1]
            for message in done:
                if not isinstance(message, shoal.Gap):
                    message.ack_nowait()
            self._stream.written(done)


def event(message: Item) -> bytes:
    if isinstance(message, shoal.Gap):
        return f"event: gap\ndata: {json.dumps(messages.shown_gap(message))}\n\n".encode()
    shown = messages.shown(message)
    named = f"id: {shown['id']}\n" if "id" in shown else ""
    return f"{named}event: message\ndata: {json.dumps(shown)}\n\n".encode()


def problem_event(error: ShoalError) -> bytes:
    """Returns the event that says why a stream ends."""
    return f"event: problem\ndata: {json.dumps(problem.body_of(error))}\n\n".encode()
