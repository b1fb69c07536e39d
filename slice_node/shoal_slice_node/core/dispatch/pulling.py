"""Pulls: takes a batch at once, without attaching. It is out until acked, or until its lease or its session ends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import NamedTuple

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.attach_room import check_pulls, check_ranges_pulled, may_be_refused, overload
from shoal_slice_node.core.dispatch.attachment import Attachment, Given
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.filling import Budget, fill
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import (
    LAGGING_AT_ONCE_MAX,
    PULL_BYTES_MAX,
    PULL_FLOOR,
    PULL_GAPS_BYTES_MAX,
    PULL_MESSAGES_MAX,
    PULL_ROWS_PER_STEP,
)

_NO_WINDOW = 1 << 62


class PullTerms(NamedTuple):
    """Describes the terms of a pull. `lease_ms` 0: the queue's ack timeout; if it has none, only the session's end
    returns what was taken. 0 elsewhere: the limit."""

    messages_max: int
    bytes_max: int
    lease_ms: int


class PullAnswer:
    """Tells what made a pull's answer that it leaves: what the pull took counts as delivered from then on. If its
    session ends before, it was given to nobody."""

    __slots__ = ("_on_left",)

    def __init__(self) -> None:
        self._on_left: Callable[[], None] | None = None

    def made(self, on_left: Callable[[], None]) -> None:
        self._on_left = on_left

    def left(self) -> None:
        """Notes that the answer leaves; an answer that brings nothing need not be noted."""
        on_left, self._on_left = self._on_left, None
        if on_left is not None:
            on_left()


class Puller:
    """Takes messages for sessions. On the leader only. Times are of a clock that only grows."""

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher
        self._leases = dispatcher.registry.leases

    def pull(
        self, session: Session, queue_id: bytes, terms: PullTerms, now_ms: int, answer: PullAnswer | None = None
    ) -> Generator[None, None, list[Parcel]]:
        """Takes up to messages_max messages of the queue's backlog, oldest of each key first. Yields between steps;
        returns what was taken, and gaps; [] if there is nothing. After many gaps it ends, whether it found messages or
        not: the next pull goes on. `answer`: tells when the answer leaves; None: it does so at once.

        Raises ResourceExhausted if there is no room for the queue in memory, or the session has too much out already.
        Where it is the one of all unary calls, a queue of which nothing is out gives PULL_FLOOR messages all the same.
        """
        if session.closed or self._state.tables.queue.get(queue_id) is None:
            return []
        attachment = session.pullers.get(queue_id)
        if session.owed >= session.owed_max:
            if attachment is not None or not session.is_of_calls:
                raise _owes_too_much(session)
            terms = terms._replace(messages_max=min(terms.messages_max or PULL_FLOOR, PULL_FLOOR))
        if attachment is None:
            check_pulls(self._dispatcher.registry, queue_id)
        feed = self._dispatcher.attaching.feed(queue_id)
        if attachment is None:
            try:
                check_ranges_pulled(self._dispatcher.registry, feed)
            except ResourceExhausted:
                self._dispatcher.registry.forget_if_idle(feed)
                raise
            attachment = Attachment(session, feed, None, _NO_WINDOW, _NO_WINDOW)
            self._dispatcher.registry.add_puller(attachment)
        was_loading, lease_ms = feed.loading, terms.lease_ms or feed.ack_timeout_ms
        lease = Lease(attachment, lease_ms, now_ms + lease_ms) if lease_ms else None
        given = attachment.begin_pull()
        try:
            parcels, gaps = yield from self._take(feed, attachment, terms, lease, given)
        finally:
            attachment.end_pull()
            self._dispatcher.registry.wake(feed)  # Streams were out of its line meanwhile, when windows opened.
        if lease is not None and lease.messages:
            self._leases.add(lease)
        left = partial(self._left, attachment, given, gaps)
        error = overload(self._dispatcher.registry, feed) if was_loading and not parcels else None
        if answer is None or not given:
            left()
        else:
            answer.made(left)
        if error is not None:
            try:
                raise error
            finally:
                error = None  # Its traceback has this frame: a circle, which would stay.
        return parcels

    def _left(self, attachment: Attachment, given: Given, gaps: Sequence[tuple[bytes, int, int]]) -> None:
        attachment.answer_left(given)
        if attachment.session.closed:
            return
        self._dispatcher.acks.gaps_leave(attachment, gaps)
        taken = sum(to - first for ranges in given.values() for first, to in ranges)
        self._state.counters.deliveries += taken - sum(to - first for _, first, to in gaps)
        if not attachment.messages and attachment.session.pullers.get(attachment.feed.queue_id) is attachment:
            self._dispatcher.registry.end_pull(attachment)
            self._dispatcher.registry.forget_if_idle(attachment.feed)

    def _take(
        self, feed: Feed, attachment: Attachment, terms: PullTerms, lease: Lease | None, given: Given
    ) -> Generator[None, None, tuple[list[Parcel], list[tuple[bytes, int, int]]]]:
        """Returns what was taken, and which of it are gaps: key id, first offset, end offset. Notes all in `given`."""
        parcels: list[Parcel] = []
        gaps: list[tuple[bytes, int, int]] = []

        def give(stream: Stream, __: Attachment, part: ChunkPart) -> None:
            of_chunk = part.key, part.first, part.low, part.to, part.chunk, part.time_ms
            parcels.append(Parcel(*of_chunk, part.times, expires_ms=part.expires_ms, gap=part.gap))
            given[stream.key_id].append((part.low, part.to))
            if part.gap:
                gaps.append((stream.key_id, part.first, part.to))

        messages, chunk_bytes = terms.messages_max or PULL_MESSAGES_MAX, terms.bytes_max or PULL_BYTES_MAX
        looked_at, registry, gap_bytes = 0, self._dispatcher.registry, PULL_GAPS_BYTES_MAX
        was_loading = feed.loading
        while min(messages, chunk_bytes, gap_bytes) > 0 and not (feed.gone or attachment.session.closed):
            is_new = feed.loading or (was_loading and not parcels)
            if is_new and may_be_refused(registry, feed):  # Nothing must be out then.
                if overload(registry, feed):
                    break
                if feed.loading:
                    yield
                    continue
            budget = Budget(PULL_ROWS_PER_STEP, chunk_bytes, messages, gap_bytes)
            while looked_at < len(feed.lagging) and not budget.spent:
                for stream in feed.first_lagging(min(LAGGING_AT_ONCE_MAX, len(feed.lagging) - looked_at)):
                    if budget.spent:
                        break
                    if not stream.lagging:
                        continue
                    feed.clear_lagging(stream)
                    if fill(registry, stream, lambda *_: attachment, give, budget, lambda _: lease):
                        continue
                    feed.lag_on(stream)  # Behind the others: the next pull begins with their keys.
                    looked_at += not budget.spent  # It waits for acks.
            messages, chunk_bytes, gap_bytes = budget.messages, budget.chunk_bytes, budget.gap_bytes
            if budget.went_on:
                looked_at = 0  # The stream that is to go on stands behind those that were looked at.
            if not budget.spent and not feed.loading:
                break
            yield
        return parcels, gaps


def _owes_too_much(session: Session) -> ResourceExhausted:
    return ResourceExhausted(
        f"what was delivered here and is not acked is in {session.owed} stretches of offsets; the limit is"
        f" {session.owed_max} now: ack some of it, or let leases end",
        subject="pulled messages",
        limit=session.owed_max,
        value=session.owed + 1,
    )
