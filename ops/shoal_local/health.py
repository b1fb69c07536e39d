"""Watches whether a local server still answers, and says when it does not: a process that hangs never ends by itself.

Belongs here: asking, and what is said. Does not: ending a silent server. It may only be slow, and a slice that hangs
for longer than its lease stops serving by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal_local import limits
from shoal_local.child import LocalChild


class Health:
    """Asks one child again and again. `say` gets a sentence when the child falls silent, and when it is back."""

    def __init__(self, child: LocalChild, say: Callable[[str], None]) -> None:
        self._child = child
        self._say = say
        self._pid = 0
        self._heard_s = 0.0
        """Event loop time of the last answer, or of the first question to this process."""
        self._told = False

    async def run(self) -> None:
        """Asks until it is cancelled."""
        while True:
            await asyncio.sleep(limits.HEALTH_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        child, loop = self._child, asyncio.get_running_loop()
        if not child.ready:
            self._pid = 0
            return
        if self._pid != child.pid:
            self._pid, self._heard_s, self._told = child.pid, loop.time(), False
        answers = await child.answers()
        if not child.ready or self._pid != child.pid:
            return
        silent_s = loop.time() - self._heard_s
        if answers:
            if self._told:
                self._say(f"{child.name} answers again, after {silent_s:.0f} s")
            self._heard_s, self._told = loop.time(), False
        elif silent_s >= limits.SILENT_S and not self._told:
            self._told = True
            self._say(
                f"{child.name} (process {child.pid}) has not answered for {silent_s:.0f} s: it hangs, or the machine is"
                f" very busy. What needs it waits. It is left running; kill -9 {child.pid} makes it start again"
            )


async def answers_http(address: str, within_s: float) -> bool:
    """Returns whether the server at host:port answers `GET /healthz` in time, whatever it answers."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
                return (await reader.readline()).startswith(b"HTTP/")
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return False
