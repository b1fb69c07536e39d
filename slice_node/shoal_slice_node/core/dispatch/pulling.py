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
    QUICK_STEPS_MAX,
)

_NO_WINDOW = STEPS_NO_LIMIT = 1 << 62


def nobody_waits() -> bool:
    """Returns False."""
    return False


class PullTerms(NamedTuple):
    """Describes the terms of a pull. `lease_ms` 0: the queue's ack timeout; if it has none, only the session's end
    returns what was taken. 0 elsewhere: the limit. `others_wait`: returns whether others wait for this one's end.
    `brief_bytes`: takes no chunk beyond so many bytes; 0: the last one may exceed `bytes_max`."""

    messages_max: int
    bytes_max: int
    lease_ms: int
    others_wait: Callable[[], bool] = nobody_waits
    brief_bytes: int = 0


class PullAnswer:
    """Tells what made a pull's answer what becomes of it. Once it leaves, what the pull took counts as delivered. If it
    is dropped, or its session ends before, it was given to nobody. `dropped`: nobody waits for it any more."""

    __slots__ = ("_on_dropped", "_on_left", "dropped")

    def __init__(self) -> None:
        self._on_left: Callable[[], None] | None = None
        self._on_dropped: Callable[[], None] | None = None
        self.dropped = False

    def made(self, on_left: Callable[[], None], on_dropped: Callable[[], None]) -> None:
        """Notes that the pull took something; it may be dropped already."""
        self._on_left, self._on_dropped = on_left, on_dropped
        if self.dropped:
            self.drop()

    def left(self) -> None:
        """Notes that the answer leaves; an answer that brings nothing need not be noted."""
        on_left, self._on_left, self._on_dropped = self._on_left, None, None
        if on_left is not None:
            on_left()

    def drop(self) -> None:
        """Notes that the answer never leaves: the pull takes nothing more, and what it took is given again in turns of
        the pump. Only for pulls with a lease. May be called at any time, but not once the answer has left."""
        self.dropped = True
        on_dropped, self._on_left, self._on_dropped = self._on_dropped, None, None
        if on_dropped is not None:
            on_dropped()


class Puller:
    """Takes messages for sessions. On the leader only. Times are of a clock that only grows."""

    def __init__(self, state: State, dispatcher: Dispatcher) -> None:
        self._state = state
        self._dispatcher = dispatcher
        self._leases = dispatcher.registry.leases

    def pull(
        self,
        session: Session,
        queue_id: bytes,
        terms: PullTerms,
        now_ms: Callable[[], int],
        answer: PullAnswer | None = None,
    ) -> Generator[None, None, list[Parcel]]:
        """Takes up to messages_max messages of the queue's backlog, oldest of each key first. Yields between steps;
        returns what was taken, and gaps; [] if there is nothing. Once it has messages or gaps it ends after
        QUICK_STEPS_MAX steps, sooner if others wait: the next pull goes on. `now_ms`: returns the time, from which the
        lease runs once all is taken. `answer`: tells when the answer leaves, or that it never does; None: it leaves at
        once. For tests, and what else needs no bound: requests of clients are done by `pull_within`.

        Raises ResourceExhausted if there is no room for the queue in memory, or the session has too much out already.
        Where it is the one of all unary calls, a queue of which nothing is out gives PULL_FLOOR messages all the same.
        """
        found = yield from self.pull_within(STEPS_NO_LIMIT, session, queue_id, terms, now_ms, answer)
        assert found is not None
        return found

    def pull_within(
        self,
        steps_max: int,
        session: Session,
        queue_id: bytes,
        terms: PullTerms,
        now_ms: Callable[[], int],
        answer: PullAnswer | None,
    ) -> Generator[None, None, list[Parcel] | None]:
        """Does as `pull`; but returns None, and has taken nothing, if it found nothing in so many steps, and there is
        more to be looked at; or found only chunks beyond `terms.brief_bytes`. Steps in which it waits for bindings that
        are being loaded do not count."""
        if session.closed or _is_dropped(answer) or self._state.tables.queue.get(queue_id) is None:
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
        lease = Lease(attachment, lease_ms) if lease_ms else None
        given = attachment.begin_pull()
        try:
            taken = yield from self._take(feed, attachment, terms, lease, given, steps_max, answer)
        finally:
            attachment.end_pull()
            self._dispatcher.registry.wake(feed)  # Streams were out of its line meanwhile, when windows opened.
        if taken is None:
            self._left(attachment, given, lease, (), 0)
            return None
        parcels, gaps = taken
        if lease is not None:
            lease.wait_to_leave(given)
            lease.begin(now_ms())
            if not lease.ended:
                self._leases.add(lease)
        messages = sum([one.to - one.low for one in parcels if not one.is_gap])
        left = partial(self._left, attachment, given, lease, gaps, messages)
        error = overload(self._dispatcher.registry, feed) if was_loading and not parcels else None
        if answer is None or not given:
            left()
        else:
            answer.made(left, partial(self._dropped, attachment, given, lease))
        if error is not None:
            try:
                raise error
            finally:
                error = None  # Its traceback has this frame: a circle, which would stay.
        return [] if _is_dropped(answer) else parcels

    def _dropped(self, attachment: Attachment, given: Given, lease: Lease | None) -> None:
        assert lease is not None, "what has no lease comes back with its session"
        self._dispatcher.registry.timeouts.end_now(lease, attachment, partial(attachment.answer_left, given))

    def _left(
        self,
        attachment: Attachment,
        given: Given,
        lease: Lease | None,
        gaps: Sequence[tuple[bytes, int, int]],
        messages: int,
    ) -> None:
        attachment.answer_left(given)
        if lease is not None:
            lease.answer_left()
        if attachment.session.closed:
            return
        self._dispatcher.acks.gaps_leave(attachment, gaps)
        self._state.counters.deliveries += messages
        if not attachment.messages and attachment.session.pullers.get(attachment.feed.queue_id) is attachment:
            self._dispatcher.registry.end_pull(attachment)
            self._dispatcher.registry.forget_if_idle(attachment.feed)

    def _take(
        self,
        feed: Feed,
        attachment: Attachment,
        terms: PullTerms,
        lease: Lease | None,
        given: Given,
        steps_max: int,
        answer: PullAnswer | None,
    ) -> Generator[None, None, tuple[list[Parcel], list[tuple[bytes, int, int]]] | None]:
        """Returns what was taken, and which of it are gaps: key id, first offset, end offset. Notes all in `given`.
        None: it found nothing in `steps_max` steps, or only what is not brief, and is to be."""
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
        was_loading, steps = feed.loading, 0
        pick = _Pick(attachment, bool(terms.brief_bytes))
        if terms.brief_bytes:
            pick.spare_bytes = max(0, terms.brief_bytes - chunk_bytes)
            chunk_bytes, gap_bytes = min(chunk_bytes, terms.brief_bytes), min(gap_bytes, terms.brief_bytes)
        while min(messages, chunk_bytes, gap_bytes) > 0:
            if feed.gone or attachment.session.closed or _is_dropped(answer):
                break
            is_new = feed.loading or (was_loading and not parcels)
            if is_new and may_be_refused(registry, feed):  # Nothing must be out then.
                if overload(registry, feed):
                    break
                if feed.loading:
                    yield
                    continue
            budget = pick.budget = Budget(PULL_ROWS_PER_STEP, chunk_bytes, messages, gap_bytes)
            while looked_at < len(feed.lagging) and not budget.spent:
                for stream in feed.first_lagging(min(LAGGING_AT_ONCE_MAX, len(feed.lagging) - looked_at)):
                    if budget.spent:
                        break
                    if not stream.lagging:
                        continue
                    feed.clear_lagging(stream)
                    if fill(registry, stream, pick, give, budget, lambda _: lease):
                        continue
                    feed.lag_on(stream)  # Behind the others: the next pull begins with their keys.
                    looked_at += not budget.spent  # It waits for acks.
            messages, chunk_bytes, gap_bytes = budget.messages, budget.chunk_bytes, budget.gap_bytes
            if budget.went_on:
                looked_at = 0  # The stream that is to go on stands behind those that were looked at.
            if not budget.spent and not feed.loading:
                break
            if budget.spent:
                steps += 1
                if parcels and (steps >= QUICK_STEPS_MAX or terms.others_wait()):
                    break
                if steps >= steps_max and not parcels:
                    return None
            yield
        return (parcels, gaps) if parcels or not pick.was_too_large else None


class _Pick:
    """Gives all that is found to one that pulls; if `is_brief`, only what the budget and `spare_bytes` have room for.
    `was_too_large`: there was none for something."""

    __slots__ = ("_attachment", "_is_brief", "budget", "spare_bytes", "was_too_large")

    def __init__(self, attachment: Attachment, is_brief: bool) -> None:
        self._attachment = attachment
        self._is_brief = is_brief
        self.budget: Budget | None = None
        self.spare_bytes = 0
        self.was_too_large = False

    def __call__(self, cost_bytes: int, more: int = 0, more_bytes: int = 0, /) -> Attachment | None:
        assert self.budget is not None
        if not self._is_brief or cost_bytes <= self.budget.chunk_bytes + self.spare_bytes:
            return self._attachment
        self.was_too_large = True
        return None


def _is_dropped(answer: PullAnswer | None) -> bool:
    return answer is not None and answer.dropped


def _owes_too_much(session: Session) -> ResourceExhausted:
    return ResourceExhausted(
        f"what was delivered here and is not acked is in {session.owed} stretches of offsets; the limit is"
        f" {session.owed_max} now: ack some of it, or let leases end",
        subject="pulled messages",
        limit=session.owed_max,
        value=session.owed + 1,
    )
