"""Server-sent events of watches: members of a key, counts of keys, each change as it is told.

Of members, every event has the id of its place, so that a browser that comes back with Last-Event-ID goes on from it.
Not here: which changes there are (the client library), and queues' messages (events.py).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import shoal
from shoal_contract.errors import ShoalError, exhausted
from shoal_ops.http import limits, names
from shoal_ops.http.callers import until_gone
from shoal_ops.http.events import MEDIA_TYPE, problem_event
from shoal_ops.http.metrics import Metrics
from shoal_runtime.tasks import Tasks

_HEARTBEAT: Final = b": nothing new\n\n"
_OF_ONE: Final[dict[type[shoal.MemberEvent], str]] = {
    shoal.Joined: "joined",
    shoal.Left: "left",
    shoal.Online: "online",
    shoal.Offline: "offline",
}
AnyWatch = shoal.MembersWatch | shoal.CountsWatch


class Watches:
    """Counts the event streams of watches, and ends them."""

    def __init__(self) -> None:
        self._open: set[AnyWatch] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, watch: AnyWatch) -> None:
        """Begins a watch. `close` it in any case. Raises ResourceExhausted, DeadlineExceeded, and what a slice refuses
        it with."""
        if len(self._open) >= limits.WATCHES_MAX:
            raise exhausted("watches of this gateway", limits.WATCHES_MAX, len(self._open) + 1)
        self._open.add(watch)
        try:
            await watch.__aenter__()
        except BaseException:
            await self.close(watch)
            raise

    async def close(self, watch: AnyWatch) -> None:
        self._open.discard(watch)
        await watch.close()

    async def stop(self) -> None:
        """Ends all watches: their streams end."""
        for watch in list(self._open):
            await self.close(watch)


class WatchResponse(Response):
    """Writes an open watch to its reader, and closes it at the end."""

    media_type = MEDIA_TYPE

    def __init__(self, watches: Watches, watch: AnyWatch, metrics: Metrics) -> None:
        super().__init__()
        self._watches = watches
        self._watch = watch
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with Tasks("watch") as tasks:
                gone = tasks.start("gone", until_gone(receive))
                writing = tasks.start("write", self._write(send))
                await asyncio.wait([gone, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._watches.close(self._watch)

    async def _write(self, send: Send) -> None:
        """Writes events until the watch ends. A reader that stalls or is gone is not an error here."""
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        part: bytes | None = f": watching\nretry: {limits.RECONNECT_MS}\n\n".encode()
        try:
            while part is not None:
                async with asyncio.timeout(limits.STALL_S):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                part = await self._next()
        except TimeoutError:
            self._metrics.streams_ended.labels("stalled").inc()
            return
        except OSError:
            return
        except ShoalError as error:
            await send({"type": "http.response.body", "body": problem_event(error), "more_body": True})
        await send({"type": "http.response.body", "body": b": ended\n\n"})

    async def _next(self) -> bytes | None:
        """Returns what is to be written next; None once the watch was closed. Raises what ends the watch."""
        try:
            async with asyncio.timeout(limits.HEARTBEAT_S):
                found = await anext(self._watch, None)
        except shoal.DeadlineExceeded:
            raise
        except TimeoutError:
            return _HEARTBEAT
        return None if found is None else event(found)


def event(found: shoal.MemberEvent | shoal.CountEvent) -> bytes:
    """Returns an event as it is written."""
    word, data = shown(found)
    place = "" if isinstance(found, shoal.KeyCount | shoal.Complete) else f"id: {found.position}\n"
    return f"{place}event: {word}\ndata: {json.dumps(data)}\n\n".encode()


def shown(found: shoal.MemberEvent | shoal.CountEvent) -> tuple[str, dict[str, Any]]:
    """Returns the word of an event, and its data."""
    if isinstance(found, shoal.Complete):
        return "complete", {}
    if isinstance(found, shoal.KeyCount):
        return "count", {**names.fields("key", found.key_bytes), "queues": found.queues, "online": found.online}
    if isinstance(found, shoal.MemberCount):
        return "member_count", {"queues": found.queues, "online": found.online}
    if isinstance(found, shoal.Members):
        members = [{**names.fields("queue", queue), "online": one} for queue, one in found.online_bytes.items()]
        return "members", {"members": members}
    data: dict[str, Any] = names.fields("queue", found.queue_bytes)
    if isinstance(found, shoal.Joined):
        data["online"] = found.online
    return _OF_ONE[type(found)], data
