"""Registers what is consumed: feeds, which streams each key wakes, which sessions have something to send.

Belongs here: the registers, and the small steps that keep them consistent. Not here: what leads to such a step
(attaching, applying, growing, acks_in_flight, pump).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence

from shoal_contract.options import DURABLE, QueueOptions
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.at_once import AtOnce
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.exclusive import Exclusives
from shoal_slice_node.core.dispatch.farewells import Farewells
from shoal_slice_node.core.dispatch.feeds import Feed, long_bytes
from shoal_slice_node.core.dispatch.leases import LeaseClock
from shoal_slice_node.core.dispatch.leaving import Leaving
from shoal_slice_node.core.dispatch.marks import KnownQueues, Marks
from shoal_slice_node.core.dispatch.parcels import Parcel, parcel_bytes
from shoal_slice_node.core.dispatch.presence import Presence
from shoal_slice_node.core.dispatch.range_room import RangeRoom
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart, OpenedChunks, RecentChunks
from shoal_slice_node.core.dispatch.releases import Releases
from shoal_slice_node.core.dispatch.returns import Returns
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.short_feeds import ShortFeeds
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.timeouts import Timeouts
from shoal_slice_node.core.dispatch.transients import Transients
from shoal_slice_node.core.dispatch.unconsumed import Unconsumed
from shoal_slice_node.core.limits import (
    ATTACHMENT_BYTES,
    CONSUMED_COUNTED_MAX,
    FEED_BYTES,
    HANDLE_BYTES,
    INLINE_STREAMS_MAX,
    STREAM_BYTES,
)

_LOOKS_FOR_A_PARCEL = 8
"""A stream that fits none of so many waiting parcels of its part gets a new parcel."""


class Registry:
    """Keeps the registers. `dirty`: sessions with something to send. `ready`: feeds to read the log for, in turn.
    `roomy`: sessions that feeds found full and that now have room. `forgetting`: streams of forgotten feeds that are
    still registered with their keys. `ending`: names of queues whose drop is being written, and by how many records."""

    def __init__(self, state: State, shares: DispatchShares) -> None:
        self.state = state
        self.shares = shares
        self.feeds: dict[bytes, Feed] = {}
        self.by_key: dict[bytes, dict[bytes, Stream]] = {}
        """Key id -> queue id -> stream, of live bindings."""
        self.awaited: dict[bytes, dict[tuple[int, int], tuple[Session, int, int]]] = {}
        """Queues attached before they have a part here: name -> (session number, handle) -> session and windows."""
        self.dirty: dict[int, Session] = {}
        self.ready: OrderedDict[Feed, None] = OrderedDict()
        self.roomy: OrderedDict[Session, None] = OrderedDict()
        self.forgetting: deque[dict[bytes, Stream]] = deque()
        self.recent = RecentChunks()
        self.opened = OpenedChunks()
        self.ending: Counter[bytes] = Counter()
        self.unconsumed = Unconsumed()
        self._wall_ms = 0
        self._note_done: Callable[[Stream], None] = lambda stream: None
        self._presence: Presence | None = None
        """Those that watch presence; None while none do."""
        self.transients = Transients(state, self.is_consumed)
        self.farewells = Farewells(state, self.is_consumed)
        self.leases = LeaseClock()
        self.returns = Returns(state, self)
        self.releases = Releases(self)
        self.timeouts = Timeouts(self)
        self.exclusives = Exclusives()
        self.leaving = Leaving()
        self.at_once = AtOnce()
        self.range_room = RangeRoom(shares.attached)
        self.short = ShortFeeds(self.range_room)
        self.marks = Marks()
        self._parcels = 0
        state.interest.keys = self.by_key
        state.interest.queues = KnownQueues(self.feeds, self.marks.queues)
        state.interest.awaited = self.awaited

    def part_here(self, name: bytes) -> bytes | None:
        """Returns the id of a queue that may be consumed here; None if it has no part here, or is being dropped."""
        queue_id = None if name in self.ending else self.state.tables.queue_by_name.get(name)
        return None if queue_id in self.transients.ending else queue_id

    @property
    def expiry_clock_ms(self) -> int:
        """Returns the time by which messages expire: the machine's, as it was told last, but it never goes back."""
        return max(self._wall_ms, self.state.time_ms)

    def tell_time(self, wall_ms: int) -> None:
        """Tells the machine's time."""
        self._wall_ms = max(self._wall_ms, wall_ms)

    def flush_by(self, note_done: Callable[[Stream], None]) -> None:
        """Tells what brings acks to the tables."""
        self._note_done = note_done

    def note_done(self, stream: Stream) -> None:
        """Notes that something of the stream became done without an ack: a later flush takes it."""
        self._note_done(stream)

    def tell_presence(self, presence: Presence | None) -> None:
        """Tells those that watch presence what happens from now on; None: there are none."""
        self._presence = presence

    def add_attachment(self, attachment: Attachment) -> None:
        """Adds an attachment to its feed."""
        feed = attachment.feed
        feed.add(attachment)
        if self._presence is not None and len(feed.attachments) == 1:
            self._presence.attached(feed.queue_id)

    def remove_attachment(self, attachment: Attachment) -> None:
        """Takes an attachment out of its feed."""
        feed = attachment.feed
        attachment.note_last_parcel(self._parcels)
        feed.remove(attachment)
        if self._presence is not None and not feed.attachments:
            self._presence.attached(feed.queue_id)

    def wake(self, feed: Feed) -> None:
        """Puts a feed in line to be served: there may be something to give, and room, also for streams that were
        passed over."""
        if feed.passed_over:
            feed.pass_over(0)
        if feed.lagging and feed.attachments:
            self.ready[feed] = None

    def is_consumed(self, queue_id: bytes) -> bool:
        """Returns whether a session has the queue attached, or has pulled messages of it out."""
        feed = self.feeds.get(queue_id)
        return feed is not None and feed.consumed

    def consumed_of_key(self, key_id: bytes, queues: int) -> int:
        """Returns how many of the `queues` bound to a key are consumed now. Looks at feeds only while some are not
        consumed. If these, and the key's streams, are more than CONSUMED_COUNTED_MAX, all of the streams count."""
        streams = self.by_key.get(key_id, {})
        consumed = len(streams)
        if not consumed:
            return 0
        if len(self.unconsumed) <= min(consumed, CONSUMED_COUNTED_MAX):
            consumed -= sum(feed.queue_id in streams for feed in self.unconsumed)
        elif consumed <= CONSUMED_COUNTED_MAX:
            consumed = sum(stream.feed.consumed for stream in streams.values())
        return min(consumed, queues)

    def taken(self, feed: Feed) -> None:
        """Notes that a session consumes the feed's queue now."""
        self.unconsumed.discard(feed)
        if feed.expires_after_s:
            self.transients.taken(feed.queue_id)
        self.farewells.taken(feed.queue_id)

    def lost_consumer(self, feed: Feed) -> None:
        """Notes that a session consumes the feed's queue no longer."""
        if feed.consumed:
            return
        self.unconsumed.add(feed)
        if feed.expires_after_s:
            self.transients.left(feed.queue_id, feed.expires_after_s)
        self.farewells.left(feed.queue_id)

    def add_feed(self, queue_id: bytes, name: bytes, options: QueueOptions, streams: int) -> Feed:
        """Registers a new feed, which has no streams yet. `streams`: how many it will have. Their memory counts from
        now on: else many feeds that are loaded side by side would take more than there is."""
        exclusive = None if options.exclusive == DURABLE.exclusive else self.exclusives.of(queue_id, options.exclusive)
        feed = self.feeds[queue_id] = Feed(queue_id, name, options, exclusive, self.shares.rests, self.range_room)
        feed.count_before(streams)
        self.shares.attached.hold(FEED_BYTES + STREAM_BYTES * streams + feed.names_bytes)
        return feed

    def loaded(self, feed: Feed) -> None:
        """Notes that every binding of a feed has its stream: no memory counts for more."""
        self.shares.attached.let_go(STREAM_BYTES * feed.to_load)
        feed.count_before(0)

    def register(self, stream: Stream) -> None:
        """Registers a new stream."""
        queue_id = stream.feed.queue_id
        if stream.feed.max_deliveries:
            self.returns.loaded(stream)
        elif self.marks:
            stream.mark_delivered(self.marks.marked(stream))
        if stream.feed.to_load:
            stream.feed.count_before(stream.feed.to_load - 1)
        else:
            self.shares.attached.hold(STREAM_BYTES)
        self.shares.attached.hold(long_bytes(stream.key))
        if not stream.end:
            self.by_key.setdefault(stream.key_id, {})[queue_id] = stream
            if self._presence is not None:
                self._presence.in_memory_changed(stream.key)

    def stop_waking(self, stream: Stream) -> None:
        """Removes a stream from its key, which does not wake it any more."""
        streams = self.by_key.get(stream.key_id)
        if streams is not None and streams.get(stream.feed.queue_id) is stream:
            del streams[stream.feed.queue_id]
            if not streams:
                del self.by_key[stream.key_id]
            if self._presence is not None:
                self._presence.in_memory_changed(stream.key)

    def in_memory(self, key_id: bytes, queues: int) -> int:
        """Returns how many of the `queues` bound to a key dispatch knows: those too that are not consumed, while their
        messages rest or acks are on their way. Presence.in_memory_changed says when this changes: watches count."""
        return min(len(self.by_key.get(key_id, ())), queues)

    def remove_stream(self, stream: Stream) -> None:
        feed = stream.feed
        self.forget_out(stream)
        self.stop_waking(stream)
        if feed.remove_stream(stream):
            self.shares.attached.let_go(STREAM_BYTES + long_bytes(stream.key))
        stream.forget_ranges()

    def forget_if_idle(self, feed: Feed) -> None:
        """Forgets a feed that is idle: idle queues have no presence in memory."""
        if feed.idle and self.feeds.get(feed.queue_id) is feed:
            self.at_once.spend(1 + self.end_feed(feed, min(INLINE_STREAMS_MAX, self.at_once.left)))

    def end_feed(self, feed: Feed, at_once_max: int) -> int:
        """Ends a registered feed: its streams leave their keys, in turns if they, or what is out, are many. Returns how
        many left at once, with what was out of them; never more than `at_once_max`."""
        del self.feeds[feed.queue_id]
        self.unconsumed.discard(feed)
        self.loaded(feed)
        self.short.forget(feed)
        streams = feed.end()
        self.shares.attached.let_go(FEED_BYTES + STREAM_BYTES * len(streams) + feed.names_bytes)
        if len(streams) <= min(64, at_once_max):
            cost = len(streams) + sum([stream.stretches for stream in streams.values()])
            if cost <= at_once_max:
                for stream in streams.values():
                    self.forget_stream(stream)
                return cost
        self.forgetting.append(streams)
        return 0

    def forget_stream(self, stream: Stream) -> None:
        self.releases.release(stream, stream.forget_out(), stream.take_rests())
        self.stop_waking(stream)
        stream.forget_ranges()

    def forget_out(self, stream: Stream) -> None:
        """Forgets what is out of a stream, and rests: at once, or in turns if it is much."""
        self.releases.add(stream, stream.forget_out(), stream.take_rests())

    def end_pull_without_messages(self, attachment: Attachment) -> None:
        """Forgets an attachment that pulls, if it has nothing out any more."""
        if attachment.handle is None and not attachment.messages:
            self.end_pull(attachment)

    def end_pull(self, attachment: Attachment) -> None:
        """Forgets a puller that has nothing out, unless it has a pull under way."""
        if not attachment.pulling:
            self.forget_puller(attachment)

    def add_puller(self, attachment: Attachment) -> None:
        """Adds what a session pulls from a queue."""
        attachment.session.add_puller(attachment)
        attachment.feed.add_puller(attachment)
        self.shares.attached.hold(ATTACHMENT_BYTES)
        self.taken(attachment.feed)

    def forget_puller(self, attachment: Attachment) -> None:
        """Forgets it: nothing of the queue is out there any more."""
        attachment.feed.remove_puller(attachment)
        self.shares.attached.let_go(ATTACHMENT_BYTES * attachment.session.remove_puller(attachment))
        self.lost_consumer(attachment.feed)

    def await_part(self, session: Session, name: bytes, handle: int, window_messages: int, window_bytes: int) -> None:
        """Notes that the session waits for a queue that has no part here yet."""
        waiting = self.awaited.setdefault(name, {})
        waiting[session.number, handle] = (session, window_messages, window_bytes)

    def stop_awaiting(self, session: Session, name: bytes, handle: int) -> None:
        waiting = self.awaited[name]
        del waiting[session.number, handle]
        if not waiting:
            del self.awaited[name]

    def parcel(self, session: Session, stream: Stream, part: ChunkPart) -> Parcel:
        """Returns the parcel that takes this part to the session: a waiting one, if it leaves behind the stream's
        last parcel; else a new one. None takes the same of a stream twice: it would name a handle twice."""
        for count in range(_LOOKS_FOR_A_PARCEL):
            slot = (stream.key_id, part.low, part.to, part.times, part.gap, count)
            parcel = session.waiting.get(slot)
            if parcel is None:
                break
            if parcel.number > stream.parcel and parcel.number > session.nacks_taken.last_parcel:
                return parcel
        else:
            count = self._parcels + _LOOKS_FOR_A_PARCEL
            slot = (stream.key_id, part.low, part.to, part.times, part.gap, count)
        self._parcels += 1
        of_chunk = part.key, part.first, part.low, part.to, part.chunk, part.time_ms
        parcel = Parcel(*of_chunk, part.times, self._parcels, part.expires_ms, part.gap)
        session.add_parcel(slot, parcel)
        self.shares.hold_chunk(session, parcel_bytes(part.chunk, part.key))
        self.dirty[session.number] = session
        return parcel

    @property
    def last_parcel(self) -> int:
        """Returns the number of the last new parcel."""
        return self._parcels

    def give(self, stream: Stream, attachment: Attachment, part: ChunkPart) -> None:
        """Puts a part, or a gap (gaps.py), on its way to the attachment's session, behind what it was given before."""
        session = attachment.session
        parcel = self.parcel(session, stream, part)
        stream.join_parcel(parcel.number)
        assert attachment.handle is not None
        if attachment.lease is not None:
            attachment.lease.join_parcel(parcel.number)
        parcel.add_handle(attachment.handle)
        self.shares.hold(session, HANDLE_BYTES)

    def add_handle(self, session: Session, parcel: Parcel, handle: int) -> None:
        """Lets another of the session's queues get a parcel that waits for it."""
        parcel.add_handle(handle)
        self.shares.hold(session, HANDLE_BYTES)

    def live_parcel(
        self, session: Session, key_id: bytes, key: bytes, messages: int, chunk: bytes, time_ms: int
    ) -> Parcel:
        """Returns a new parcel for the session, behind all that wait: a live chunk, whose messages have no offsets."""
        self._parcels += 1
        parcel = Parcel(key, 0, 0, messages, chunk, time_ms, 0, self._parcels, is_live=True)
        session.add_parcel((key_id, 0, messages, 0, 0, self._parcels), parcel)
        self.shares.hold_chunk(session, parcel_bytes(chunk, key))
        self.dirty[session.number] = session
        return parcel

    def give_run(self, stream: Stream, attachment: Attachment, parts: Sequence[ChunkPart]) -> int:
        """Puts whole chunks, given for the first time, on their way as `give` does, until the session has no room.
        Returns how many. `give` must just have given the attachment the chunk before them: what leaves behind that one
        also leaves behind all that waited when nacks were taken."""
        session, key_id, handle = attachment.session, stream.key_id, attachment.handle
        waiting, number, share = session.waiting, stream.parcel, self.shares.deliveries
        line = self.shares.line
        most_bytes = line.most_bytes(session)
        assert handle is not None and number > session.nacks_taken.last_parcel
        given = held_bytes = 0
        for part in parts:
            if session.under_way_bytes + held_bytes >= session.room_bytes or share.used_bytes >= most_bytes:
                break
            parcel = waiting.get((key_id, part.low, part.to, 0, 0, 0))
            if parcel is None or parcel.number < number:
                if line.is_too_large(session, parcel_bytes(part.chunk, part.key)):
                    break
                self.shares.hold(session, held_bytes)
                held_bytes = 0
                stream.join_parcel(number)
                parcel = self.parcel(session, stream, part)
            number = parcel.number
            parcel.add_handle(handle)
            held_bytes += HANDLE_BYTES
            given += 1
        self.shares.hold(session, held_bytes)
        stream.join_parcel(number)
        return given

    def let_go(self, session: Session, cost_bytes: int) -> None:
        """Notes that the session holds less: feeds that found it full may have room again."""
        self.shares.let_go(session, cost_bytes)
        if session.turned_away:
            self.has_room_again(session)

    def has_room_again(self, session: Session) -> None:
        """Notes a session that has room again, or waits for its turn. Must be called whenever a session holds or owes
        less, or may hold or owe more."""
        if session.turned_away and session.has_room_of_its_own:
            if session.has_room:
                self.roomy[session] = None
            else:
                session.wait_for_room()

    def serve_turned_away(self, session: Session, feeds_max: int) -> None:
        """Lines up the session's attachment again in some of the feeds that found the session full."""
        away = session.turned_away
        for _ in range(min(feeds_max, len(away))):
            feed = away.next(large=bool(away.large))
            away.forget_large_chunks(feed)
            attachment = feed.attachments.get(session.number)
            if attachment is not None and attachment.window_open:
                feed.line_up(attachment)
                self.wake(feed)
        self.has_room_again(session)
