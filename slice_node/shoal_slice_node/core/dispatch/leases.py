"""Keeps leases, of pulled messages and of queues with an ack timeout, and finds those that are over.

In memory, on the leader only.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import LEASES_ENDED_KEPT

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Attachment
    from shoal_slice_node.core.dispatch.streams import Stream


class Lease:
    """Holds what one pull took, or what an attachment of a queue with an ack timeout was given between two ticks.
    `messages`: how many of them are still out. `streams`: where they came from. `until_ms` 0: its time begins with the
    next tick."""

    __slots__ = ("attachment", "lease_ms", "messages", "streams", "until_ms")

    def __init__(self, attachment: Attachment, lease_ms: int, until_ms: int = 0) -> None:
        self.attachment = attachment
        self.lease_ms = lease_ms
        self.until_ms = until_ms
        self.messages = 0
        self.streams: list[Stream] = []

    def take(self, stream: Stream, messages: int) -> None:
        """Notes that the pull took messages of this stream."""
        self.messages += messages
        if not self.streams or self.streams[-1] is not stream:
            self.streams.append(stream)

    def begin(self, now_ms: int) -> None:
        """Begins its time."""
        self.until_ms = now_ms + self.lease_ms

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
        self._open: list[Lease] = []
        """Leases of attachments; what is given until the next tick joins them."""

    def __len__(self) -> int:
        return len(self._heap)

    def of(self, attachment: Attachment) -> Lease | None:
        """Returns the lease for what this attachment is given now; None: its queue has no ack timeout."""
        lease_ms = attachment.feed.ack_timeout_ms
        if not lease_ms:
            return None
        lease = attachment.lease
        if lease is None:
            lease = Lease(attachment, lease_ms)
            attachment.begin_lease(lease)
            self._open.append(lease)
        return lease

    def begin_open(self, now_ms: int) -> None:
        """Begins the time of what was given since the last tick: from the time that is told now, so that nothing ends
        early."""
        opened, self._open = self._open, []
        for lease in opened:
            lease.attachment.end_lease()
            lease.begin(now_ms)
            if lease.messages:
                self.add(lease)

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
