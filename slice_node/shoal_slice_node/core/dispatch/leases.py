"""Keeps leases, of pulled messages and of queues with an ack timeout, and finds those that are over.

In memory, on the leader only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

from shoal_slice_node.core.limits import LEASES_BEGUN_PER_TICK, LEASES_ENDED_KEPT

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment, Given
    from shoal_slice_node.core.dispatch.sessions import Session
    from shoal_slice_node.core.dispatch.streams import Stream

_PARCEL = attrgetter("parcel")


class Lease:
    """Holds what one pull took, or what an attachment of a queue with an ack timeout was given between two ticks.
    `messages`: how many of them are still out; while there are any, its session counts it, and `streams` has where
    they came from. `until_ms` 0: its time begins with the next tick, or the end of the pull; until then it may take
    more. Then it ends as soon as nothing is out, and keeps nothing: the clock may know it for as long as it would have
    run.

    `parcel`: the number of its last parcel; 0: all of it was sent. The time that counts begins when this parcel is
    sent. If it is not sent in as much time, what of the lease waits is taken back, and the time of the rest begins."""

    __slots__ = ("_attachment", "_first", "_in_answer", "_others", "lease_ms", "messages", "parcel", "until_ms")

    def __init__(self, attachment: Attachment, lease_ms: int) -> None:
        self._attachment: Attachment | None = attachment
        self.lease_ms = lease_ms
        self.until_ms = 0
        self.parcel = 0
        self.messages = 0
        self._first: Stream | None = None
        self._others: list[Stream] | None = None
        """Where they came from. Most come from one stream: a list for it would take as much as all the rest."""
        self._in_answer: Given | None = None
        """What a pull took under it, while its answer has not left."""

    @property
    def attachment(self) -> Attachment:
        """Returns the attachment that has the messages. Must not be asked once it has ended."""
        assert self._attachment is not None
        return self._attachment

    @property
    def ended(self) -> bool:
        """Returns whether it has ended."""
        return self._attachment is None

    @property
    def streams(self) -> Iterator[Stream]:
        """Yields the streams that they came from."""
        if self._first is not None:
            yield self._first
        yield from self._others or ()

    def take(self, stream: Stream, messages: int) -> None:
        """Notes that so many messages of this stream belong to it."""
        if not self.messages:
            self.attachment.session.leases.count_out(1)
        self.messages += messages
        if self._first is None:
            self._first = stream
        elif self._others is None:
            if self._first is not stream:
                self._others = [stream]
        elif self._others[-1] is not stream:
            self._others.append(stream)

    def join_parcel(self, number: int) -> None:
        """Notes that some of it is in this parcel, which may be one that waits already, before others of it."""
        self.parcel = max(self.parcel, number)

    def all_sent(self) -> None:
        """Notes that nothing of it waits to be sent."""
        self.parcel = 0

    def wait_to_leave(self, given: Given) -> None:
        """Notes that a pull's answer brings all of it, and has not left."""
        self._in_answer = given

    def answer_left(self) -> None:
        """Notes that this answer is on its way."""
        self._in_answer = None

    def take_from_answer(self, key_id: bytes) -> list[tuple[int, int]]:
        """Returns what a pull's answer brings of a key that has not left, and forgets it: it comes back without having
        been sent, and whenever that answer leaves, it does not count as delivered."""
        return [] if self._in_answer is None else self.attachment.take_given(self._in_answer, key_id)

    def begin(self, now_ms: int) -> None:
        """Begins its time. It takes nothing more."""
        self.until_ms = now_ms + self.lease_ms
        self._end_if_all_are_back()

    def release(self, messages: int) -> None:
        """Notes that so many of them are not out any more."""
        self.messages -= messages
        if not self.messages:
            self.attachment.session.leases.count_out(-1)
            self._first = self._others = None
            self._end_if_all_are_back()

    def _end_if_all_are_back(self) -> None:
        if self.until_ms and not self.messages:
            self._attachment = self._in_answer = None


class SessionLeases:
    """Keeps the leases of one session with parcels that wait, in the order of these parcels. `out`: how many leases
    have something out."""

    __slots__ = ("_waiting", "out")

    def __init__(self) -> None:
        self.out = 0
        self._waiting: OrderedDict[Lease, None] = OrderedDict()

    def __len__(self) -> int:
        """Returns how many have parcels that wait."""
        return len(self._waiting)

    def count_out(self, more: int) -> None:
        """Notes that so many more have something out, or less if it is negative. Only Lease calls this."""
        self.out += more
        assert self.out >= 0

    def wait_to_be_sent(self, lease: Lease) -> None:
        """Notes a lease with parcels that wait."""
        self._waiting[lease] = None

    def stop_waiting(self, lease: Lease) -> None:
        """Notes that a lease need not wait for its parcels any more."""
        self._waiting.pop(lease, None)

    def next_sent(self, sent_to: int) -> Lease | None:
        """Returns a lease whose parcels have all left, and forgets it; None: there is none. `sent_to`: see Session."""
        lease = next(iter(self._waiting), None)
        if lease is None or lease.parcel > sent_to:
            return None
        del self._waiting[lease]
        return lease

    def clear(self) -> None:
        """Forgets those with parcels that wait: the session has ended."""
        self._waiting.clear()


class LeaseClock:
    """Orders leases by their end. The next rebuild leaves out leases with all their messages acked, and ends that are
    not those of their leases any more. So memory holds at most twice the leases with something out, plus
    LEASES_ENDED_KEPT."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Lease]] = []
        self._serial = count()
        self._rebuild_at = LEASES_ENDED_KEPT
        self._open: list[Lease] = []
        """Leases of attachments; what is given until the next tick joins them."""
        self._sending: OrderedDict[Session, None] = OrderedDict()
        """Sessions that were sent something since the last tick, of those with leases that wait for that."""

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
        early. Those beyond LEASES_BEGUN_PER_TICK begin with later ticks."""
        opened, self._open = self._open[:LEASES_BEGUN_PER_TICK], self._open[LEASES_BEGUN_PER_TICK:]
        for lease in sorted(opened, key=_PARCEL):
            if lease.ended:
                continue  # It was open again.
            lease.attachment.end_lease()
            session = lease.attachment.session
            if lease.parcel <= session.sent_to:
                lease.all_sent()
            elif not session.closed:
                session.leases.wait_to_be_sent(lease)
            self._begin(lease, now_ms)
        left = LEASES_BEGUN_PER_TICK
        while self._sending and left > 0:
            session = next(iter(self._sending))
            while left > 0 and (sent := session.leases.next_sent(session.sent_to)) is not None:
                sent.all_sent()
                self._begin(sent, now_ms)
                left -= 1
            if left > 0:
                del self._sending[session]

    def _begin(self, lease: Lease, now_ms: int) -> None:
        lease.begin(now_ms)
        if lease.messages:
            self.add(lease)

    def sends(self, session: Session) -> None:
        """Notes that a session with leases that wait is being sent something."""
        self._sending[session] = None

    def open_again(self, lease: Lease) -> None:
        """Lets a lease's time begin with the next tick, if something of it is out."""
        if lease.messages:
            self._open.append(lease)

    def add(self, lease: Lease) -> None:
        heappush(self._heap, (lease.until_ms, next(self._serial), lease))
        if len(self._heap) > self._rebuild_at:
            self._heap = [entry for entry in self._heap if entry[2].messages and entry[2].until_ms == entry[0]]
            heapify(self._heap)
            self._rebuild_at = 2 * len(self._heap) + LEASES_ENDED_KEPT

    def due(self, now_ms: int) -> Iterator[Lease]:
        """Takes out the leases that are over; yields those that have messages out, one by one."""
        while self._heap and self._heap[0][0] <= now_ms:
            until_ms, _, lease = heappop(self._heap)
            if lease.messages and lease.until_ms == until_ms:
                yield lease
