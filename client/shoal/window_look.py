"""Looks from time to time why nothing comes to an inbox, and says so if a queue's window is full, or if as much of one
key is unacked as a slice gives of one.

A program that takes messages and never acks them gets no more after a while, and nothing else would tell it why.
Only the queue that each slice delivered to last is looked at: the cost is small, and where nothing comes, it is among
those that wait. With `drop_repeats=False` it is not known what is unacked, so nothing is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from shoal.core.repeats import Repeats
from shoal.inbox_slice import InboxSlice
from shoal.limits import WINDOW_FULL_S, WINDOW_LOOK_S, WINDOW_TOLD_S
from shoal.telling import Telling
from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import KEY_UNACKED_MAX
from shoal_contract.names import show

_log = logging.getLogger("shoal")


class WindowLook:
    """Looks for one inbox. `window_messages`, `window_bytes`: of each of its queues, on each slice. `unread`: returns
    whether messages wait in the inbox: then the program is busy, and nothing is told."""

    def __init__(
        self,
        window_messages: int,
        window_bytes: int,
        queues: Mapping[int, bytes],
        parts: Mapping[str, InboxSlice],
        unread: Callable[[], bool],
        telling: Telling,
    ) -> None:
        self.moving = True
        """True if the program took a message since the last look; the inbox sets it."""
        self._window_messages = window_messages
        self._window_bytes = window_bytes
        self._queues = queues
        self._parts = parts
        self._unread = unread
        self._telling = telling
        self._still_since_s = 0.0
        self._tell_from_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to look, in the running event loop."""
        self._timer = asyncio.get_running_loop().call_later(WINDOW_LOOK_S, self._look)

    def close(self) -> None:
        """Ends the looks."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.moving or self._unread():
            self.moving, self._still_since_s = False, now
        elif now - self._still_since_s >= WINDOW_FULL_S and now >= self._tell_from_s:
            self._tell_full(now)
        self.start()

    def _tell_full(self, now: float) -> None:
        """Tells of the first full window or key that is found, and then of none for WINDOW_TOLD_S."""
        for part in self._parts.values():
            queue = self._queues.get(part.last_handle)
            if queue is None or part.repeats is None:
                continue
            error = self._full_window(queue, part, part.repeats)
            full_key = part.repeats.full_key(part.last_handle, KEY_UNACKED_MAX)
            # A larger window helps no key with all that unacked. Stretches may be those of others, and not acked.
            if full_key is not None and (error is None or full_key[1] >= KEY_UNACKED_MAX):
                error = _key_error(queue, part, *full_key)
            if error is not None:
                self._tell_from_s = now + WINDOW_TOLD_S
                _log.warning("%s", error)
                self._telling.error(error)
                return

    def _full_window(self, queue: bytes, part: InboxSlice, repeats: Repeats) -> ResourceExhausted | None:
        messages = repeats.unacked(part.last_handle)
        body_bytes = part.recent.unacked(part.last_handle, repeats)
        if messages >= self._window_messages:
            found, option, limit, value = "messages are", "window_messages", self._window_messages, messages
        elif body_bytes >= self._window_bytes:
            found, option, limit, value = "bytes are", "window_bytes", self._window_bytes, body_bytes
        else:
            return None
        what = f"window of {show(queue)}"
        return ResourceExhausted(
            f"{what} is full: {value:,} {found} unacked, so slice {part.session.slice_name} sends no more of it; ack"
            f" what is done, or consume with a larger {option}",
            subject=what,
            limit=limit,
            value=value,
        )


def _key_error(queue: bytes, part: InboxSlice, full_key: bytes, messages: int, stretches: int) -> ResourceExhausted:
    key = show(full_key)
    apart, both = (f", in {stretches:,} stretches", " of both together") if stretches else ("", "")
    return ResourceExhausted(
        f"key {key} of queue {show(queue)}: {messages:,} messages are unacked{apart}; slice {part.session.slice_name}"
        f" gives no more than {KEY_UNACKED_MAX:,}{both} of one key, whatever the window, so it sends no more of this"
        " key: ack what is done, the oldest first",
        subject=f"unacked messages of key {key}",
        limit=KEY_UNACKED_MAX,
        value=messages + stretches,
    )
