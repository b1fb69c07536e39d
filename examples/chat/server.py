"""A small group chat: its backend. `make chat` starts a cluster and it, and says where to look.

A page speaks over one WebSocket, in JSON: it asks (`do`: join, leave, say, notify, tell, read, got), and is told
(`kind`: rooms, message, people, said, error). What it was told as a message it confirms with `got`; only then is it
acked, so a page that loses its connection, or this backend, gets it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi.responses import FileResponse

import shoal
from rooms import ROOMS_MAX, BadName, Tab
from shoal_local.cluster import LocalCluster

TEXT_CHARACTERS_MAX = 4_000
UNCONFIRMED_MAX = 200
FRAME_BYTES_MAX = 64 << 10
"""A page's frame: more than a text with every character escaped. It is parsed before anything else is known of it."""


def _text(data: bytes) -> str:
    """Returns what a page can show: any program may publish to a room, and not only text."""
    return data.decode(errors="replace")


def _is_own(socket: WebSocket) -> bool:
    """Returns whether the page that opens a WebSocket is this chat's: a browser opens one for any page, and tells whose
    it is. The host must be known, or a name that leads here would pass for one."""
    host, origin = socket.headers.get("host", ""), socket.headers.get("origin")
    name = urlsplit(f"//{host}").hostname or ""
    own = {"localhost", "127.0.0.1", "::1", socket.app.state.host}
    return name in own and origin in (None, f"http://{host}", f"https://{host}")


def _leave_out(gap: shoal.Gap) -> None:
    """Does nothing: what a page does not get any more are notices that are over. Without this, gaps are logged."""


def _asked(frame: str) -> dict[str, Any]:
    """Returns what a page asks for. Raises ValueError, RecursionError."""
    found = json.loads(frame)
    if not isinstance(found, dict):
        raise ValueError("a frame holds one object of JSON")
    return found


class Page:
    """One connection of one page."""

    def __init__(self, tab: Tab, socket: WebSocket, inbox: shoal.Inbox) -> None:
        self._tab = tab
        self._socket = socket
        self._inbox = inbox
        self._told: deque[tuple[int, shoal.Message]] = deque()
        """The messages that the page has not confirmed, with their numbers."""
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def serve(self, rooms: dict[str, int]) -> None:
        """Serves the page until it goes."""
        await self._tell(kind="rooms", rooms=rooms)
        for room in rooms:
            self._watch(room)
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write())
        try:
            done, _ = await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            tasks = [reading, writing, *self._watches.values()]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # Unlike gather, it says who cancelled this one: anyio asks for that.

    async def _tell(self, **event: Any) -> None:
        await self._socket.send_text(json.dumps(event))

    async def _write(self) -> None:
        number = 0
        async for message in self._inbox:
            number += 1
            self._told.append((number, message))
            room = message.key.removeprefix("room-") if message.key.startswith("room-") else ""
            heads = {name: _text(message.headers.get(name, b"")) for name in ("from", "id")}
            times = {"at": message.time_ms} | ({"until": message.expires_ms} if message.expires_ms else {})
            await self._tell(kind="message", n=number, room=room, text=_text(message.body), **times, **heads)

    async def _read(self) -> None:
        with suppress(WebSocketDisconnect):
            while True:
                asked: dict[str, Any] = {}
                try:
                    asked = _asked(await self._socket.receive_text())
                    await self._do(asked)
                except KeyError as error:
                    await self._refuse(asked, f"the frame lacks {error}")
                except (shoal.ShoalError, TypeError, ValueError, RecursionError) as error:
                    await self._refuse(asked, str(error))

    async def _refuse(self, asked: dict[str, Any], why: str) -> None:
        await self._tell(kind="error", text=why[:300], id=str(asked.get("id", ""))[:64])

    async def _do(self, asked: dict[str, Any]) -> None:
        what, room = asked["do"], asked.get("room", "")
        if what == "got":
            while self._told and self._told[0][0] <= asked["n"]:
                await self._told.popleft()[1].ack()
        elif what == "join":
            await self._tab.join(room)
            self._watch(room)
        elif what == "leave":
            await self._tab.leave(room)
            if room in self._watches:
                self._watches.pop(room).cancel()
        elif what in ("say", "notify", "tell"):
            text, id = str(asked["text"])[:TEXT_CHARACTERS_MAX], str(asked["id"])[:64]
            if what == "tell":
                await self._tab.tell(asked["to"], text, id)
            elif what == "notify":
                await self._tab.notify(room, text, id, asked["seconds"])
            else:
                await self._tab.say(room, text, id)
            await self._tell(kind="said", id=id)
        elif what == "read":
            await self._tab.read(room)

    def _watch(self, room: str) -> None:
        if room not in self._watches and len(self._watches) < ROOMS_MAX:
            self._watches[room] = asyncio.create_task(self._tell_people(room))

    async def _tell_people(self, room: str) -> None:
        async for people in self._tab.people(room):
            await self._tell(kind="people", room=room, people=people)


def application(at: str, host: str = "127.0.0.1") -> FastAPI:
    """Returns the chat's application. `at`: the cluster's redirector. `host`: the name or address that pages use,
    besides those of this machine."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with shoal.connect(at) as app.state.broker:
            yield

    app = FastAPI(lifespan=lifespan)
    app.state.host = host

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(Path(__file__).with_name("page.html"))

    @app.websocket("/chat")
    async def chat(socket: WebSocket, person: str, tab: str) -> None:
        if not _is_own(socket):
            await socket.close(1008)  # Before it is accepted: the answer is 403.
            return
        await socket.accept()
        try:
            mine = Tab(app.state.broker, person, tab)
            rooms = await mine.open()
            consuming = app.state.broker.consume(mine.queue, window_messages=UNCONFIRMED_MAX, on_gap=_leave_out)
            async with consuming as inbox:
                await Page(mine, socket, inbox).serve(rooms)
        except shoal.NoSuchQueue as error:
            await socket.close(1012, str(error)[:120])  # The page was away for too long: it opens anew.
        except (shoal.ShoalError, BadName) as error:
            await socket.close(1008, str(error)[:120])
        except (WebSocketDisconnect, RuntimeError):
            pass  # The page went while it was written to.

    return app


class Server(uvicorn.Server):
    """Says where it is once it takes connections, not before."""

    def __init__(self, config: uvicorn.Config, said: str) -> None:
        super().__init__(config)
        self._said = said

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            print(self._said, flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description="A small group chat on Shoal.")
    parser.add_argument("--at", default="", help="a redirector's host:port; left out: a cluster of its own")
    parser.add_argument("--listen", default="127.0.0.1:7480", help="where the page is, host:port, or a port alone")
    parser.add_argument("--data", type=Path, default=Path(".shoal-chat"), help="the folder of its own cluster")
    given = parser.parse_args()
    host, _, port = given.listen.rpartition(":")
    host = host or "127.0.0.1"
    async with AsyncExitStack() as stack:
        at = given.at or (await stack.enter_async_context(LocalCluster(given.data, slices=2))).redirector
        frames: dict[str, Any] = {"ws": "wsproto", "ws_max_size": FRAME_BYTES_MAX}
        config = uvicorn.Config(application(at, host), host, int(port), log_level="warning", **frames)
        said = f"chat at http://{host}:{port}/ (Ctrl-C ends it); its cluster: shoal status --at {at}"
        await Server(config, said).serve()


if __name__ == "__main__":
    asyncio.run(main())
