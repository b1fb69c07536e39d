"""Gives back what waits in an inbox's buffer for half of its queue's ack timeout: it is given again with a new timeout,
perhaps to another consumer, and its delivery does not count. What was handed out is not looked at.

One timer for all queues. Not here: how it is given back (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from math import inf

from shoal.inbox_buffer import InboxBuffer
from shoal.limits import LONG_WAIT_LOOK_S, LONG_WAIT_LOOKS


class LongWaits:
    """Looks at the buffer while there are queues with an ack timeout. `put_current_back`: puts what the program has not
    taken of the current delivery back into the buffer."""

    def __init__(self, buffer: InboxBuffer, put_current_back: Callable[[], None]) -> None:
        self._buffer = buffer
        self._put_current_back = put_current_back
        self._told_s: dict[str, dict[int, float]] = {}
        """Slice -> handle -> half of its queue's ack timeout there: slices hear of a queue's next life one by one."""
        self._waits_s: dict[int, float] = {}
        """Handle -> how long its messages may wait: the least that slices told."""
        self._shortest_s = inf
        """No more than the least in `_waits_s`: what was longer since is found at the next look."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def learn(self, slice_name: str, timeouts_ms: Mapping[int, int]) -> None:
        """Takes the ack timeouts that a slice told, in milliseconds, by handle; 0: it has none there now."""
        told_s = self._told_s.setdefault(slice_name, {})
        for handle, ms in timeouts_ms.items():
            wait_s, before_s = ms / 2000, told_s.get(handle, 0)
            if wait_s == before_s:
                continue
            if wait_s:
                told_s[handle] = wait_s
            else:
                del told_s[handle]
            least_s = self._waits_s.get(handle, inf)
            if 0 < wait_s <= least_s:
                self._waits_s[handle] = wait_s
                self._shortest_s = min(self._shortest_s, wait_s)
            elif before_s == least_s:
                self._look_for_the_least(handle)
        if self._waits_s:
            self._look_later()

    def _look_for_the_least(self, handle: int) -> None:
        waits_s = [one[handle] for one in self._told_s.values() if handle in one]
        if waits_s:
            self._waits_s[handle] = min(waits_s)
        else:
            del self._waits_s[handle]

    def timeouts_s(self, slice_name: str) -> Mapping[int, float]:
        """Returns the ack timeouts of queues that have one at a slice, by handle."""
        return {handle: 2 * wait_s for handle, wait_s in self._told_s.get(slice_name, {}).items()}

    def leave(self, handles: Iterable[int]) -> None:
        """Forgets queues that left the inbox."""
        for handle in handles:
            for waits_s in (self._waits_s, *self._told_s.values()):
                waits_s.pop(handle, None)

    def close(self) -> None:
        """Ends the looks."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        """Sets the timer for the next look, unless it goes off sooner anyway."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(LONG_WAIT_LOOK_S, self._shortest_s / LONG_WAIT_LOOKS)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._shortest_s = min(self._waits_s.values(), default=inf)
        if not self._waits_s:
            return
        now_s = asyncio.get_running_loop().time()
        if self._buffer.taken_came_s <= now_s - self._shortest_s:
            self._put_current_back()
        self._buffer.give_back_old(self._waits_s, self._shortest_s, now_s)
        self._look_later()
