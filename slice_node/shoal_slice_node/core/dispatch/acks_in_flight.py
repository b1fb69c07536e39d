"""Brings acks to the journal: they are taken from sessions at once, journaled together, done when the tables have them.

A flush takes acks that came before it began, in batches of bounded cost: sessions have turns, and what exceeds the
bound of a flush is left to the next one, as are later acks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from shoal_slice_node.core.apply.effects import AckedByChange
from shoal_slice_node.core.apply.records import Acked, Reason
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.dispatch.pieces import PieceOfGap, cost_of_look, pieces_of_all
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.unsent import UnsentLists, withdraw_unsent
from shoal_slice_node.core.fair_queue import FairQueue
from shoal_slice_node.core.limits import (
    ACK_COST_PER_FLUSH,
    DONE_RANGES_COPIED_PER_COST,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_COST,
    STRETCHES_LOOKED_AT_PER_COST,
    STRETCHES_PER_PIECE,
)
from shoal_slice_node.core.rows.detail_row import acked_by_search, count_done, count_ranges, detail_key

_COST: Final = 2
"""What taking one acked range of a stream without done ranges costs."""

_NO_SESSION: Final = 0
"""The source of what a record, or time, made done, and of acks that are taken again because their record failed. All of
these have one turn in a flush together, beside the turns of sessions."""


class NackTerms(NamedTuple):
    """Says how messages are taken back. `delay_ms`: for how long they rest. `unseen`: no program was given them, so
    they count no delivery, and do not rest. `unsent_too`: what was not sent yet comes back, too."""

    delay_ms: int = 0
    unseen: bool = False
    unsent_too: bool = False


@dataclass(slots=True)
class AckBatch:
    """Holds the acks of one record, and the streams they came from. Each batch must come back, by `applied` or
    `failed`."""

    acks: list[Acked] = field(default_factory=list)
    sources: list[tuple[Stream, list[tuple[int, int]]]] = field(default_factory=list)
    cost: int = 0
    """The cost of applying them, in acks: the done ranges of their bindings count too."""


class AcksInFlight:
    """Keeps acks until the tables have them, and gaps that have left for sessions until what they name is done."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        registry.flush_by(self.note_done)
        self._gathering: FairQueue[Feed] = FairQueue()
        """Feeds with acks that no flush has taken, by the session that acked first."""
        self._gathered: dict[Feed, int] = {}
        """The same feeds, each with how many flushes had begun when it came, which ascends."""
        self.flushes = 0
        """The number of flushes that have begun."""
        self._flushing: deque[tuple[Feed, deque[Stream]]] = deque()
        """The streams that the flush under way has not taken yet, by feed."""
        self.remaining = 0
        """The number of streams in `_flushing`."""
        self.gaps_left: deque[tuple[bool, Iterator[PieceOfGap]]] = deque()
        """Gaps that have left for sessions and are not done yet: whether they replace messages, and the pieces of them
        that are to be noted for each of those that are told. At most the gaps that sessions had out."""

    @property
    def waiting(self) -> bool:
        """Returns whether some acks are not taken yet."""
        return bool(self._gathered or self._flushing)

    @property
    def oldest(self) -> int:
        """Returns how many flushes had begun when the first of the acks came that no flush has taken; one more than
        have begun: there are none."""
        return next(iter(self._gathered.values()), self.flushes + 1)

    def oldest_of(self, feeds: Iterable[Feed]) -> int:
        """Returns the same for the acks of these feeds."""
        gathered = self._gathered
        return min((gathered[feed] for feed in feeds if feed in gathered), default=self.flushes + 1)

    def _gather(self, feed: Feed, stream: Stream, source: int) -> None:
        """Notes that the feed has acks that a flush is to take: the next one, or a later one if many wait."""
        feed.acked(stream)
        if feed not in self._gathered:
            self._gathered[feed] = self.flushes
            self._gathering.put(source, feed, _COST, 0)

    @property
    def flushing(self) -> bool:
        """Returns whether a flush is under way and has acks left to take."""
        return bool(self._flushing)

    def ack(self, attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
        """Takes an ack of the offsets first <= o < to of this key, as far as this attachment has them out. Returns what
        it cost: 1, and 1 more for DONE_RANGES_PER_COST stretches looked at, and for each further one that was taken."""
        acked, cost = self._settle(attachment, key_id, first, to)
        self._registry.state.counters.acks += acked
        return cost

    def ack_handles(
        self,
        session: Session,
        handles: list[int],
        at: int,
        low: int,
        key_id: bytes,
        first: int,
        to: int,
        seen: int,
        cost_max: int,
    ) -> tuple[int, int, int]:
        """Takes acks of the offsets first <= o < to of a key for several handles of a session, from `handles[at]` on,
        of this one from `low` on, until they cost `cost_max` or more. `seen`: how many resets the client had seen (an
        ack of an earlier life does nothing). Returns where to go on, and what is left of `cost_max`."""
        attachments, acked = session.attachments, 0
        while at < len(handles) and cost_max > 0:
            attachment = attachments.get(handles[at])
            at += 1
            if attachment is None or attachment.resets_before > seen:
                cost_max -= 1
                low = first
                continue
            stream, begin = attachment.feed.streams.get(key_id), low
            if stream is not None and len(stream.out) > STRETCHES_PER_PIECE:
                low = stream.span_out(begin, to, STRETCHES_PER_PIECE)
                messages, cost = self._settle(attachment, key_id, begin, low)
                if low < to:
                    at -= 1
                else:
                    low = first
            else:
                low = first
                messages, cost = self._settle(attachment, key_id, begin, to)
            acked += messages
            cost_max -= cost
        self._registry.state.counters.acks += acked
        return at, low, cost_max

    def ack_anywhere(self, attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
        """Takes an ack of offsets first <= o < to of this key that this attachment's client was given on an earlier
        stream: wherever they are, except those that rest, as a record may be under way that says what becomes of them.
        Where the binding has as many done ranges as it may, only of what is out. Returns what it cost, as `ack` does,
        and 1 more for STRETCHES_LOOKED_AT_PER_COST that it passed over. The caller bounds it (`Stream.span`)."""
        registry, feed = self._registry, attachment.feed
        stream, found = feed.streams.get(key_id), registry.state.key_by_id(key_id)
        if stream is None or found is None:
            return 1
        first, to = max(first, stream.cursor, found[1].low), min(to, stream.end or to, found[1].head)
        if first >= to:
            return 1
        cost = cost_of_look(stream, first, to)
        if stream.done is not None and len(stream.done) >= DONE_RANGES_MAX:
            held = stream.held(first, to)
            return cost + sum(self.ack(one, key_id, low, high) for one, low, high in held)
        cost += stream.known_within(first, to) // STRETCHES_LOOKED_AT_PER_COST
        parts = stream.unacked(first, to)
        if not parts:
            return cost
        if parts[-1][1] > stream.next:
            feed.set_lagging(stream)  # It is to be read from the log, without these.
        taken = [out for low, high in parts for out in stream.acked_anywhere(low, high)]
        registry.state.counters.acks += sum(high - low for low, high in parts)
        self._gather(feed, stream, attachment.session.number)
        registry.releases.begin_record()
        registry.releases.add(stream, taken, [])
        registry.releases.end_record()
        registry.wake(feed)
        return cost + 2 * (len(parts) + len(taken))

    def gap_leaves(self, session: Session, key_id: bytes, gap: Parcel) -> None:
        """Notes that a gap leaves for a session: what it names is done, as turns come."""
        attachments = session.attachments
        holders = [attachments[handle] for handle in gap.handles if handle in attachments]
        self.gaps_left.append((gap.replaces_messages, pieces_of_all(holders, ((key_id, gap.first, gap.to),))))

    def gaps_leave(self, attachment: Attachment, gaps: Sequence[tuple[bytes, int, int]]) -> None:
        """Notes that gaps leave with the answer of a pull: key ids, first offsets, end offsets."""
        if gaps:
            self.gaps_left.append((False, pieces_of_all((attachment,), gaps)))

    def gaps_turn(self, cost_max: int) -> None:
        """Notes that consumers were told of gaps. Goes on with the one that left first."""
        replaces_messages, told = self.gaps_left[0]
        while cost_max > 0:
            piece = next(told, None)
            if piece is None:
                self.gaps_left.popleft()
                return
            attachment, key_id, first, to = piece
            cost_max -= self.was_told(attachment, key_id, first, to, replaces_messages)

    def was_told(self, attachment: Attachment, key_id: bytes, first: int, to: int, messages: bool = False) -> int:
        """Notes that a consumer was told that the offsets first <= o < to are gone. Returns what it cost, as
        `ack` does. Messages that it has out of them stay in its window until it acks them, or gives them back; but
        with `messages` they are those in the place of which it was told."""
        return self._settle(attachment, key_id, first, to, only_gaps=not messages)[1]

    def _settle(
        self, attachment: Attachment, key_id: bytes, first: int, to: int, only_gaps: bool = False
    ) -> tuple[int, int]:
        """Returns how many offsets became done, and what it cost."""
        stream = attachment.feed.streams.get(key_id)
        if stream is None or first >= to:
            return 0, 1
        had = len(stream.out)
        cost = 1 if had < DONE_RANGES_PER_COST else cost_of_look(stream, first, to)
        done = stream.settle_gaps(attachment, first, to) if only_gaps else stream.settle(attachment, first, to)
        if not done:
            return 0, cost
        if had > 1:
            cost += max(0, had - len(stream.out) - 1)  # The first one is counted.
        feed, registry = attachment.feed, self._registry
        self._gather(feed, stream, attachment.session.number)
        if attachment.handle is None and not attachment.messages:
            registry.end_pull(attachment)
        if feed.lagging:
            registry.wake(feed)
        if attachment.session.turned_away:
            registry.has_room_again(attachment.session)
        return done, cost

    def note_done(self, stream: Stream) -> None:
        """Notes that messages became done without an ack: by a record, while they rested, or as they are gone. A
        later flush takes what cursor and ranges became by that, too."""
        feed = stream.feed
        self._gather(feed, stream, _NO_SESSION)
        self._registry.wake(feed)

    def nack(
        self, attachment: Attachment, key_id: bytes, first: int, to: int, terms: NackTerms, lists: UnsentLists
    ) -> int:
        """Takes back the offsets first <= o < to of this key, as far as this attachment has them out and was sent
        them; with `terms.unsent_too` also what waits to be sent. `lists`: those of the frame. Returns what it cost, as
        `ack` does; each further stretch counts twice. Raises ResourceExhausted if no more messages can rest."""
        feed, registry = attachment.feed, self._registry
        delay_ms, unseen, unsent_too = terms
        stream = feed.streams.get(key_id)
        if stream is None or first >= to:
            return 1
        self._check_rests(attachment, stream, first, to, terms)
        cost = cost_of_look(stream, first, to)
        not_sent = lists.of(attachment, stream, first, to)
        if unsent_too and (not_sent or attachment.has_unsent(key_id)):
            parts = withdraw_unsent(registry, attachment, stream, first, to).pairs()
        else:
            parts = not_sent.gaps(first, to) if not_sent else [(first, to)]
        back = [one for low, high in parts for one in stream.take_back(attachment, low, high)]
        if back:
            if unseen:
                registry.returns.not_sent(stream, back)
            else:
                registry.returns.came_back(stream, back, Reason.NACK, attachment.session, delay_ms)
            after_release(registry, feed, attachment)
        return cost + 2 * max(0, len(back) - 1) + lists.take_cost()

    def check_nack(self, attachment: Attachment, key_id: bytes, first: int, to: int, terms: NackTerms) -> int:
        """Checks a nack that is taken in several pieces, before the first one. Returns what it cost, as `ack` does.
        Raises ResourceExhausted if not all that it takes back can rest."""
        stream = attachment.feed.streams.get(key_id)
        if stream is None or first >= to:
            return 1
        self._check_rests(attachment, stream, first, to, terms)
        return cost_of_look(stream, first, to)

    def _check_rests(self, attachment: Attachment, stream: Stream, first: int, to: int, terms: NackTerms) -> None:
        feed = attachment.feed
        if (feed.max_deliveries and not terms.unseen) or terms.delay_ms:
            stretches = stream.count_held(attachment, first, to)
            if stretches:
                self._registry.returns.check_rests(feed, attachment.session, stretches)

    def acked_by_change(self, acked: AckedByChange) -> None:
        """Takes in acks that came in a change: the tables have them, and no record need say so again. What of them was
        not given yet is passed over by reading the log. The caller must look after the feed: windows have opened."""
        registry = self._registry
        feed = registry.feeds.get(acked.queue_id)
        stream = None if feed is None else feed.streams.get(acked.key_id)
        if feed is None or stream is None:
            return  # The loader will find it as the tables have it.
        if acked.to > stream.next:
            feed.set_lagging(stream)
        registry.returns.end_rests(stream, acked.first, acked.to)
        registry.releases.add(stream, stream.acked_by_change(acked.first, acked.to), [])
        if stream.end and self._is_finished(stream):
            registry.remove_stream(stream)

    def begin_flush(self) -> None:
        """Begins to take acks that came so far: of each session in its turn, up to ACK_COST_PER_FLUSH. Must not be
        called while a flush is under way."""
        assert not self._flushing
        self.flushes += 1
        cost = 0
        while self._gathering and cost < ACK_COST_PER_FLUSH:
            source, feed = self._gathering.take()
            del self._gathered[feed]
            streams = feed.begin_flush()
            self._flushing.append((feed, deque(streams.values())))
            self.remaining += len(streams)
            found = 0
            for stream in streams.values():
                found += self._cost(feed, stream, max(1, stream.unflushed_ranges)) if stream.done else _COST
            if found > _COST:
                self._gathering.charge(source, found - _COST)
            cost += max(1, found)

    def take(self, cost_max: int) -> AckBatch:
        """Returns the next acks to journal, of a cost of about `cost_max`; the cost grows with the done ranges of each
        binding. The batch may be empty."""
        batch = AckBatch()
        while self._flushing and batch.cost < cost_max:
            feed, streams = self._flushing[0]
            if feed.gone:
                self.remaining -= len(streams)
                streams.clear()
            while streams and batch.cost < cost_max:
                self.remaining -= 1
                batch.cost += self._take_stream(feed, streams.popleft(), batch)
            if not streams:
                self._flushing.popleft()
                feed.end_acks()
                if not feed.attachments:
                    self._registry.forget_if_idle(feed)
        return batch

    def _take_stream(self, feed: Feed, stream: Stream, batch: AckBatch) -> int:
        if feed.streams.get(stream.key_id) is not stream:
            return 1  # Its binding was discarded; a later binding has not got these messages.
        pairs = stream.begin_acks()
        if pairs:
            batch.acks += [Acked(feed.queue_id, stream.key_id, low, high) for low, high in pairs]
            batch.sources.append((stream, pairs))
        elif self._is_finished(stream):  # An earlier record took these acks too.
            self._registry.remove_stream(stream)
        return self._cost(feed, stream, len(pairs))

    def _cost(self, feed: Feed, stream: Stream, acked: int) -> int:
        """Returns what taking so many acked ranges of a stream costs."""
        ranges = len(stream.done) if stream.done is not None else 0
        if acked_by_search(acked, ranges):
            counted = self._counted(feed.queue_id, stream.key_id) if feed.max_deliveries else 0
            return 1 + acked * (1 + ranges // DONE_RANGES_COPIED_PER_COST) + counted // DONE_RANGES_PER_COST
        return 1 + acked + ranges // DONE_RANGES_PER_COST

    def _counted(self, queue_id: bytes, key_id: bytes) -> int:
        """Returns about how many stretches of a binding have counts of deliveries: only its row knows."""
        row = self._registry.state.tables.detail.get(detail_key(queue_id, key_id))
        return 0 if row is None else count_ranges(row) - count_done(row)

    def applied(self, batch: AckBatch) -> None:
        """Notes that the batch is in the tables."""
        for stream, _ in batch.sources:
            stream.end_acks()
            if stream.end and self._is_finished(stream):
                self._registry.remove_stream(stream)
            if not stream.feed.attachments:
                self._registry.forget_if_idle(stream.feed)

    @staticmethod
    def _is_finished(stream: Stream) -> bool:
        """Returns whether the binding ended, all of it is done, and no ack of it is under way."""
        busy = stream.out or stream.acks_under_way or stream.key_id in stream.feed.unflushed
        return stream.finished and stream.is_flushed and not busy and stream.feed.streams.get(stream.key_id) is stream

    def failed(self, batch: AckBatch) -> None:
        """Notes that the batch is not in the tables: its acks will be taken again."""
        for stream, pairs in batch.sources:
            stream.end_acks()
            self._ack_again(stream, pairs)
            self._registry.forget_if_idle(stream.feed)

    def _ack_again(self, stream: Stream, pairs: list[tuple[int, int]]) -> None:
        feed = stream.feed
        if feed.gone or feed.streams.get(stream.key_id) is not stream:
            return
        for low, high in pairs:
            stream.ack_again(low, high)
        self._gather(feed, stream, _NO_SESSION)
