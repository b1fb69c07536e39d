"""Lets new calls in between two slices of long work.

gRPC accepts one call at a time, and each takes some turns of the loop. If long work has every second turn, a few
hundred calls a second are accepted, whoever sends them: those of a client that sends more, and cancels them, are a line
in which all others wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from shoal_slice_node.adapters.limits import ACCEPT_TURNS


class Accepting:
    """Rests while calls come. `begun`: returns how many calls ever began."""

    def __init__(self, begun: Callable[[], int]) -> None:
        self._begun = begun
        self._seen = 0

    async def rest(self, most_ms: float) -> None:
        """Gives all other work a turn; while calls begin, more of them, for `most_ms` at most."""
        ends_s = time.perf_counter() + most_ms / 1000
        await asyncio.sleep(0)
        quiet_turns = 0 if self._begun() > self._seen else ACCEPT_TURNS
        while quiet_turns < ACCEPT_TURNS and time.perf_counter() < ends_s:
            self._seen = self._begun()
            await asyncio.sleep(0)
            quiet_turns = 0 if self._begun() > self._seen else quiet_turns + 1
        self._seen = self._begun()
