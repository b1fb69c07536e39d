"""Knows the event loop that a connection belongs to, and refuses calls from others: they would wait for ever."""

from __future__ import annotations

import asyncio
import threading

from shoal_contract.errors import BadCall


class OwnLoop:
    """Belongs to one connection. Before `begin` and after `end` it refuses nothing: other errors say then that the
    connection is not open."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ""

    def begin(self) -> None:
        """Takes the running event loop as the connection's."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.current_thread().name

    def end(self) -> None:
        """Takes that the connection is closed."""
        self._loop = None

    def check(self) -> None:
        """Raises BadCall where the connection's event loop is not the one that runs."""
        loop = self._loop
        if loop is None:
            return
        try:
            if asyncio.get_running_loop() is loop:
                return
            where = "another event loop"
        except RuntimeError:
            where = "outside of an event loop"
        ended = ", which has ended" if loop.is_closed() else ""
        advice = (
            "connect again in the event loop that runs now, and leave each connection in its own"
            if loop.is_closed()
            else "hand the call over with asyncio.run_coroutine_threadsafe(call, loop), loop being the connection's; or"
            " connect in each event loop"
        )
        raise BadCall(
            f"this connection belongs to the event loop of thread {self._thread}{ended}, and this call comes from"
            f" {where}, in thread {threading.current_thread().name}: nothing of it was done; {advice}",
            subject="event loop",
        )
