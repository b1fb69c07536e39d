"""Gives back what waits in an inbox's buffer for half of its queue's ack timeout: it is given again with a new timeout,
perhaps to another consumer, and its delivery does not count. What was handed out is not looked at.

One timer for all queues. Not here: how it is given back (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from shoal.inbox_buffer import InboxBuffer
from shoal.limits import LONG_WAIT_LOOK_S, LONG_WAIT_LOOKS


class LongWaits:
    """Looks at the buffer while there are queues with an ack timeout. `put_current_back`: puts what the program has not
    taken of the current delivery back into the buffer."""

    def __init__(self, buffer: InboxBuffer, put_current_back: Callable[[], None]) -> None:
        self._buffer = buffer
        self._put_current_back = put_current_back
        self._waits_s: dict[int, float] = {}
        """Handle -> how long its messages may wait: half of its queue's ack timeout."""
        self._shortest_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def learn(self, timeouts_ms: Mapping[int, int]) -> None:
        """Takes ack timeouts, in milliseconds, by handle."""
        self._waits_s.update((handle, ms / 2000) for handle, ms in timeouts_ms.items())
        if not self._waits_s:
            return  # Those that were asked for have left meanwhile.
        self._shortest_s = min(self._waits_s.values())
        if self._timer is None:
            self._look_later()

    @property
    def timeouts_s(self) -> Mapping[int, float]:
        """Returns the ack timeouts of queues that have one, by handle."""
        return {handle: 2 * wait_s for handle, wait_s in self._waits_s.items()}

    def leave(self, handles: Container[int]) -> None:
        """Forgets queues that left the inbox."""
        self._waits_s = {handle: wait_s for handle, wait_s in self._waits_s.items() if handle not in handles}

    def close(self) -> None:
        """Ends the looks."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        if not self._closed:
            wait_s = max(LONG_WAIT_LOOK_S, self._shortest_s / LONG_WAIT_LOOKS)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._waits_s:
            return
        now_s = asyncio.get_running_loop().time()
        if self._buffer.taken_came_s <= now_s - self._shortest_s:
            self._put_current_back()
        self._buffer.give_back_old(self._waits_s, self._shortest_s, now_s)
        self._look_later()
