"""Gives turns to connections with data to read: one connection in each turn of the event loop.

HTTP shares the loop with work that must not wait for it. However many connections send, and whatever they send, only
one head, or a few pieces of a body, is read at a time; with pauses where HTTP is not the process's main work.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Protocol


class Turner(Protocol):
    def turn(self) -> None:
        """Reads a bounded part of the data that has come."""


class Turns:
    """Orders the turns of one server's connections. `pause_s`: the seconds between one turn and the next."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._last_s = -math.inf
        self._line: dict[Turner, None] = {}
        self._due = False

    def ask(self, connection: Turner) -> None:
        """Puts the connection in line: its turn comes after those that asked before. Asking again changes nothing."""
        self._line.setdefault(connection)
        self._come_back()

    def leave(self, connection: Turner) -> None:
        self._line.pop(connection, None)

    def __contains__(self, connection: Turner) -> bool:
        return connection in self._line

    def _come_back(self) -> None:
        if self._line and not self._due:
            self._due = True
            loop = asyncio.get_running_loop()
            if time.perf_counter() - self._last_s < self._pause_s:
                loop.call_later(self._pause_s, self._next)
            else:
                loop.call_soon(self._next)

    def _next(self) -> None:
        self._due = False
        connection = next(iter(self._line), None)
        if connection is None:
            return
        del self._line[connection]
        try:
            connection.turn()
        finally:
            self._last_s = time.perf_counter()
            self._come_back()
