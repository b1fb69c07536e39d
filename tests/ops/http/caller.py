"""A caller of the gateway's application, without a server between: it sees when its request is waited for."""

from __future__ import annotations

import asyncio
from typing import Any

from shoal_ops.http.gate import Gate


class Caller:
    """Asks once. `leave` closes its connection. `looked_for`: its look has begun, and the gateway waits for it to
    leave."""

    def __init__(self, application: Gate, path: str, method: str = "GET") -> None:
        self._application = application
        self._path, _, self._query = path.partition("?")
        self._method = method
        self._received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.status = 0
        self.looked_for = False

    def leave(self) -> None:
        self._received.put_nowait({"type": "http.disconnect"})

    async def ask(self) -> None:
        scope = {"type": "http", "method": self._method, "path": self._path, "raw_path": self._path.encode()}
        scope |= {
            "query_string": self._query.encode(),
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
        }
        scope |= {"http_version": "1.1", "scheme": "http", "root_path": "", "server": ("localhost", 80)}
        await self._application(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        self.looked_for = self._received.empty()
        return await self._received.get()

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
