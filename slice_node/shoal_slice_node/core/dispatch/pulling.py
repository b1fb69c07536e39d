"""Pull: a batch taken at once, without attaching. What it took is out until acked, its lease's or its session's end."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Attachment, Feed
from shoal_slice_node.core.dispatch.filling import Budget, Piece, fill
from shoal_slice_node.core.dispatch.sessions import Parcel, Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.state import State
from shoal_slice_node.limits import PULL_BYTES_MAX, PULL_MESSAGES_MAX

_NO_WINDOW = 1 << 62


class PullTerms(NamedTuple):
    """`lease_ms` 0: no lease, the session's end returns what was taken. 0 elsewhere: the limit."""

    messages_max: int
    bytes_max: int
    lease_ms: int


class Puller:
    """Takes for sessions, and gives back when leases end. Of the leader only."""

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher
        self._leases: list[tuple[int, bytes]] = []

    def pull(self, session: Session, queue_id: bytes, terms: PullTerms, now_ms: int) -> list[Parcel]:
        """Up to messages_max messages of the queue's backlog, oldest of each key first; [] if there are none."""
        if session.closed:
            return []
        feed = self._dispatcher.feed(queue_id)
        attachment = session.pullers.get(queue_id)
        if attachment is None:
            attachment = session.pullers[queue_id] = Attachment(session, feed, None, _NO_WINDOW, _NO_WINDOW)
            feed.pullers[session.number] = attachment
        until_ms = now_ms + terms.lease_ms if terms.lease_ms else 0
        parcels = self._take(feed, attachment, _budget(terms), until_ms)
        self._state.counters.deliveries += sum(parcel.to - parcel.low for parcel in parcels)
        if parcels and until_ms:
            heapq.heappush(self._leases, (until_ms, queue_id))
        if not attachment.messages:
            self._dispatcher.end_pull(attachment)
            self._dispatcher.forget_if_idle(feed)
        return parcels

    def _take(self, feed: Feed, attachment: Attachment, budget: Budget, until_ms: int) -> list[Parcel]:
        parcels: list[Parcel] = []

        def give(stream: Stream, _: Attachment, piece: Piece) -> None:
            stream.out[-1].lease_until_ms = until_ms
            parcels.append(Parcel(piece.key, piece.first, piece.low, piece.to, piece.chunk, piece.time_ms, piece.times))

        for stream in list(feed.lagging.values()):
            if budget.spent:
                break
            feed.clear_lagging(stream)
            if not fill(self._state, stream, lambda: attachment, give, budget):
                # Behind the others: the next pull begins with their keys.
                feed.set_lagging(stream)
        return parcels

    def expire(self, now_ms: int) -> None:
        """What was taken under a lease that is over is given again."""
        while self._leases and self._leases[0][0] <= now_ms:
            _, queue_id = heapq.heappop(self._leases)
            feed = self._dispatcher.feeds.get(queue_id)
            if feed is not None:
                self._expire_feed(feed, now_ms)

    def _expire_feed(self, feed: Feed, now_ms: int) -> None:
        for stream in feed.streams.values():
            if stream.out and stream.give_back(None, now_ms):
                self._dispatcher.mark(stream)
                feed.set_lagging(stream)
        for attachment in [puller for puller in feed.pullers.values() if not puller.messages]:
            self._dispatcher.end_pull(attachment)
        self._dispatcher.wake(feed)
        self._dispatcher.forget_if_idle(feed)


def _budget(terms: PullTerms) -> Budget:
    messages = min(terms.messages_max or PULL_MESSAGES_MAX, PULL_MESSAGES_MAX)
    body_bytes = min(terms.bytes_max or PULL_BYTES_MAX, PULL_BYTES_MAX)
    return Budget(messages, body_bytes, messages)
