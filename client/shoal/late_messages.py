"""Keeps messages that pulls took and could not return. Their slice gives them to no other consumer, so the next pull
begins with them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from shoal.limits import PULL_LATE_BYTES_MAX
from shoal.messages import Message
from shoal.slice_session import SliceSession
from shoal.telling import Telling
from shoal_contract.errors import ResourceExhausted

_log = logging.getLogger("shoal")


class Taken(NamedTuple):
    """Keeps a pulled message together with the stream that holds it: once the stream is lost, the slice gives the
    message again."""

    message: Message
    session: SliceSession
    stream: int

    @property
    def held(self) -> bool:
        """Returns whether the slice still holds the message for this connection."""
        return self.session.streaming and self.session.stream_number == self.stream


class LateMessages:
    """Keeps late messages, at most PULL_LATE_BYTES_MAX of bodies. Above it the oldest are dropped here; their slice
    gives them again when the connection ends."""

    def __init__(self, telling: Telling, bytes_max: int = PULL_LATE_BYTES_MAX) -> None:
        self._telling = telling
        self._bytes_max = bytes_max
        self._queues: dict[bytes, deque[Taken]] = {}
        """Queue -> its messages, never empty. The queue that got messages last is last."""
        self._bytes = 0

    def keep(self, queue: bytes, taken: Iterable[Taken]) -> None:
        """Keeps messages in the order in which they came."""
        waiting = self._queues.pop(queue, None) or deque()
        for one in taken:
            waiting.append(one)
            self._bytes += _size(one)
        if waiting:
            self._queues[queue] = waiting
        self._forget_oldest()

    def take(self, queue: bytes, messages_max: int) -> list[Taken]:
        """Returns up to `messages_max` of a queue's messages that their slices still hold for this connection, and
        keeps them no more."""
        waiting = self._queues.get(queue)
        found: list[Taken] = []
        while waiting and len(found) < messages_max:
            one = waiting.popleft()
            self._bytes -= _size(one)
            if one.held:
                found.append(one)
        if not waiting:
            self._queues.pop(queue, None)
        return found

    def _forget_oldest(self) -> None:
        forgotten = 0
        while self._bytes > self._bytes_max:
            queue, waiting = next(iter(self._queues.items()))
            self._bytes -= _size(waiting.popleft())
            forgotten += 1
            if not waiting:
                del self._queues[queue]
        if forgotten:
            what = "messages of cancelled or late pulls"
            sentence = f"{forgotten} {what} are given again only when this connection ends: pull with a lease_ms"
            _log.warning("%s", sentence)
            self._telling.error(ResourceExhausted(sentence, subject=what, limit=self._bytes_max))


def _size(one: Taken) -> int:
    return len(one.message.body) + 300
