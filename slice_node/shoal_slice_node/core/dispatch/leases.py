"""Keeps the leases of pulled messages, and finds those that are over. In memory, on the leader only."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from shoal_slice_node.core.dispatch.feeds import Attachment
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import LEASES_ENDED_KEPT


class Lease:
    """Holds what one pull took. `messages`: how many of them are still out. `streams`: where they came from."""

    __slots__ = ("attachment", "messages", "streams", "until_ms")

    def __init__(self, attachment: Attachment, until_ms: int) -> None:
        self.attachment = attachment
        self.until_ms = until_ms
        self.messages = 0
        self.streams: list[Stream] = []

    def take(self, stream: Stream, messages: int) -> None:
        """Notes that the pull took messages of this stream."""
        self.messages += messages
        if not self.streams or self.streams[-1] is not stream:
            self.streams.append(stream)

    def release(self, messages: int) -> None:
        """Notes that so many of them are not out any more."""
        self.messages -= messages


class LeaseClock:
    """Orders leases by their end. The next rebuild leaves out leases with all their messages acked. So memory holds at
    most twice the leases with something out, plus LEASES_ENDED_KEPT."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lease]] = []
        self._serial = count()
        self._rebuild_at = LEASES_ENDED_KEPT

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, lease: Lease) -> None:
        heappush(self._heap, (lease.until_ms, next(self._serial), lease))
        if len(self._heap) > self._rebuild_at:
            self._heap = [entry for entry in self._heap if entry[2].messages]
            heapify(self._heap)
            self._rebuild_at = 2 * len(self._heap) + LEASES_ENDED_KEPT

    def due(self, now_ms: int) -> Iterator[Lease]:
        """Takes out the leases that are over; yields those that have messages out, one by one."""
        while self._heap and self._heap[0][0] <= now_ms:
            lease = heappop(self._heap)[2]
            if lease.messages:
                yield lease
