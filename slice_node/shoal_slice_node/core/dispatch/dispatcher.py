"""The switchboard: sessions, feeds of consumed queues, and which streams each key wakes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter

from shoal_slice_node.core.dispatch.feeds import Attachment, Feed
from shoal_slice_node.core.dispatch.filling import Budget, Piece, fill
from shoal_slice_node.core.dispatch.loading import load_feed
from shoal_slice_node.core.dispatch.sessions import Parcel, Session
from shoal_slice_node.core.dispatch.streams import Out, Stream
from shoal_slice_node.core.effects import Bound, Effects, Grown, Purged, Unbound
from shoal_slice_node.core.records import Acked
from shoal_slice_node.core.state import State
from shoal_slice_node.limits import DELIVERED_MARKS_MAX, PUMP_TURN_BYTES, PUMP_TURN_ROWS


class Dispatcher:
    """Of the leader. `dirty`: sessions with deliveries to send. `ready`: feeds to read the log for, in turn."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.feeds: dict[bytes, Feed] = {}
        self.by_key: dict[bytes, dict[bytes, Stream]] = {}
        # Queues attached before they have a part here: name -> (session number, handle) -> session and windows.
        self.awaited: dict[bytes, dict[tuple[int, int], tuple[Session, int, int]]] = {}
        self.dirty: dict[int, Session] = {}
        self.unflushed: dict[bytes, Feed] = {}
        self._ready: OrderedDict[Feed, None] = OrderedDict()
        self._parcels = 0
        self._marks: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        state.watch.keys = self.by_key
        state.watch.queues = self.feeds
        state.watch.awaited = self.awaited

    # Sessions and attachments.

    def attach(self, session: Session, name: bytes, handle: int, window_messages: int, window_bytes: int) -> bool:
        """False: the queue has no part here yet; it is attached as soon as it has. A handle in use is replaced. Nothing
        is attached to a session that has ended."""
        if session.closed:
            return False
        self.detach(session, handle)
        queue_id = self.state.tables.queue_by_name.get(name)
        if queue_id is None:
            waiting = self.awaited.setdefault(name, {})
            waiting[session.number, handle] = (session, window_messages, window_bytes)
            session.awaited[handle] = name
            return False
        feed = self.feed(queue_id)
        session.reuse_handle(handle)
        attachment = Attachment(session, feed, handle, window_messages, window_bytes)
        session.attachments[handle] = attachment
        feed.attachments.append(attachment)
        self.wake(feed)
        return True

    def feed(self, queue_id: bytes) -> Feed:
        """The feed of a queue that exists, loaded if need be."""
        feed = self.feeds.get(queue_id)
        if feed is None:
            queue = self.state.load_queue_by_id(queue_id)
            assert queue is not None, f"queue {queue_id.hex()} has a name but no row"
            feed = self.feeds[queue_id] = load_feed(self.state, queue)
            for stream in feed.streams.values():
                stream.marked = self._marks.get((queue_id, stream.key_id), 0)
                if not stream.end:
                    self.by_key.setdefault(stream.key_id, {})[queue_id] = stream
        return feed

    def detach(self, session: Session, handle: int) -> None:
        """What it had out is given again to others, or later. An unknown handle changes nothing."""
        attachment = session.attachments.pop(handle, None)
        if attachment is not None:
            attachment.feed.attachments.remove(attachment)
            session.forget_handle(handle)
            self._give_back(attachment)
        name = session.awaited.pop(handle, None)
        if name is not None:
            waiting = self.awaited[name]
            del waiting[session.number, handle]
            if not waiting:
                del self.awaited[name]

    def close(self, session: Session) -> None:
        """The session ended. What it asked for and is still on its way here comes to nothing."""
        session.closed = True
        for handle in [*session.attachments, *session.awaited]:
            self.detach(session, handle)
        for attachment in list(session.pullers.values()):
            self.end_pull(attachment)
            self._give_back(attachment)
        session.waiting.clear()
        self.dirty.pop(session.number, None)

    def end_pull(self, attachment: Attachment) -> None:
        """A puller that has nothing out leaves no trace."""
        attachment.feed.pullers.pop(attachment.session.number, None)
        attachment.session.pullers.pop(attachment.feed.queue_id, None)

    def _give_back(self, attachment: Attachment) -> None:
        feed = attachment.feed
        for stream in feed.streams.values():
            if stream.out and stream.give_back(attachment):
                self.mark(stream)
                feed.set_lagging(stream)
        self.wake(feed)
        self.forget_if_idle(feed)

    def mark(self, stream: Stream) -> None:
        """Remembers what was given out, for when the queue is consumed again: it is a redelivery then."""
        slot = (stream.feed.queue_id, stream.key_id)
        self._marks[slot] = stream.next
        self._marks.move_to_end(slot)
        if len(self._marks) > DELIVERED_MARKS_MAX:
            self._marks.popitem(last=False)

    def forget_if_idle(self, feed: Feed) -> None:
        """Idle queues have no presence in memory."""
        if feed.idle and self.feeds.get(feed.queue_id) is feed:
            for stream in feed.streams.values():
                self._unwatch(stream)
            del self.feeds[feed.queue_id]

    def _unwatch(self, stream: Stream) -> None:
        watchers = self.by_key.get(stream.key_id)
        if watchers is not None and watchers.get(stream.feed.queue_id) is stream:
            del watchers[stream.feed.queue_id]
            if not watchers:
                del self.by_key[stream.key_id]

    # What records did.

    def applied(self, effects: Effects) -> None:
        for name, queue_id in effects.created:
            self._created(name, queue_id)
        for event in effects.events:
            if isinstance(event, Grown):
                self._grown(event)
            elif isinstance(event, Bound):
                self._bound(event)
            elif isinstance(event, Unbound):
                self._unbound(event)
            else:
                self._purged(event)
        for queue_id in effects.dropped:
            self._dropped(queue_id)
        for queue_id in {event.queue_id for event in effects.events if isinstance(event, Purged)}:
            self._forget_purged(queue_id)

    def _created(self, name: bytes, queue_id: bytes) -> None:
        for (_, handle), (session, window_messages, window_bytes) in list(self.awaited.get(name, {}).items()):
            self.attach(session, name, handle, window_messages, window_bytes)

    def _grown(self, grown: Grown) -> None:
        key_id, key, first, messages, body_bytes, time_ms, chunk = grown
        to = first + messages
        slot = (key_id, first, to, 0, 0)
        for stream in self.by_key.get(key_id, {}).values():
            if stream.lagging or stream.next != first:
                continue
            feed = stream.feed
            attachment: Attachment | None
            if len(feed.attachments) == 1:
                attachment = feed.attachments[0]
                session = attachment.session
                if not (attachment.window_open and session.under_way_bytes < session.window_bytes):
                    attachment = feed.pick()
            else:
                attachment = feed.pick()
            if attachment is None or stream.full_of_ranges:
                feed.set_lagging(stream)
                continue
            session = attachment.session
            stream.next = to
            stream.out.append(Out(first, to, body_bytes, attachment, 0))
            attachment.messages += messages
            attachment.body_bytes += body_bytes
            parcel = session.waiting.get(slot)
            if parcel is None or parcel.number < stream.parcel:
                parcel = self._parcel(session, stream, Piece(key, first, first, to, body_bytes, time_ms, chunk, 0))
            stream.parcel = parcel.number
            assert attachment.handle is not None
            parcel.handles.append(attachment.handle)

    def _bound(self, bound: Bound) -> None:
        feed = self.feeds[bound.queue_id]
        stream = feed.streams.get(bound.key_id)
        if stream is None:
            stream = feed.streams[bound.key_id] = Stream(feed, bound.key_id, bound.key, bound.start)
        elif bound.start < stream.cursor:
            stream.bind_from_below(bound.start)
        else:
            stream.bind_again(bound.start)
        self.by_key.setdefault(bound.key_id, {})[feed.queue_id] = stream
        found = self.state.key_by_id(bound.key_id)
        if found is not None and (stream.returned or stream.next < found[1].head):
            feed.set_lagging(stream)
            self.wake(feed)

    def _unbound(self, unbound: Unbound) -> None:
        feed = self.feeds[unbound.queue_id]
        stream = feed.streams.get(unbound.key_id)
        if stream is None:
            return
        self._unwatch(stream)
        if unbound.end:
            stream.end = unbound.end
            if stream.next < stream.end:
                feed.set_lagging(stream)
        else:
            self._remove_stream(stream)

    def _purged(self, purged: Purged) -> None:
        """What is on its way to a session still goes; its ack will find nothing."""
        feed = self.feeds[purged.queue_id]
        stream = feed.streams.get(purged.key_id)
        if stream is None:
            return
        stream.purge(purged.to)
        feed.clear_lagging(stream)
        feed.unflushed.pop(stream.key_id, None)

    def _forget_purged(self, queue_id: bytes) -> None:
        """Windows have opened, and no ack will say so; pullers may have nothing left."""
        feed = self.feeds.get(queue_id)
        if feed is None:
            return
        for attachment in [puller for puller in feed.pullers.values() if not puller.messages]:
            self.end_pull(attachment)
        if not feed.unflushed:
            self.unflushed.pop(queue_id, None)
        self.wake(feed)
        self.forget_if_idle(feed)

    def _remove_stream(self, stream: Stream) -> None:
        feed = stream.feed
        for entry in stream.out:
            entry.attachment.release(entry.to - entry.first, entry.body_bytes)
        self._unwatch(stream)
        feed.clear_lagging(stream)
        if stream.out:  # windows have opened, and no ack will say so
            self.wake(feed)
        stream.out = []
        feed.unflushed.pop(stream.key_id, None)
        feed.streams.pop(stream.key_id, None)

    def _dropped(self, queue_id: bytes) -> None:
        """Attached sessions wait for a queue of that name to come back."""
        feed = self.feeds.pop(queue_id, None)
        if feed is None:
            return
        self.unflushed.pop(queue_id, None)
        for stream in list(feed.streams.values()):
            self._remove_stream(stream)
        for attachment in feed.attachments:
            session, handle = attachment.session, attachment.handle
            assert handle is not None
            session.attachments.pop(handle, None)
            session.forget_handle(handle)
            self.attach(session, feed.name, handle, attachment.window_messages, attachment.window_bytes)
        for number, attachment in feed.pullers.items():
            assert attachment.session.number == number
            attachment.session.pullers.pop(queue_id, None)

    # Reading logs for those who lag.

    def wake(self, feed: Feed) -> None:
        """There may be something to give, and room."""
        if feed.lagging and feed.attachments:
            self._ready[feed] = None

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def turn(self) -> None:
        """One bounded turn for the feed that waited longest."""
        feed, _ = self._ready.popitem(last=False)
        if self.feeds.get(feed.queue_id) is not feed:  # dropped, or forgotten and perhaps loaded anew
            return
        budget = Budget(PUMP_TURN_ROWS, PUMP_TURN_BYTES)
        for stream in list(feed.lagging.values()):
            feed.clear_lagging(stream)
            if not fill(self.state, stream, feed.pick, self._give, budget):
                feed.set_lagging(stream)  # behind the others: keys take turns
            if budget.spent:
                self.wake(feed)
                return
            if not feed.has_room:  # the others stay in front
                return

    def _give(self, stream: Stream, attachment: Attachment, piece: Piece) -> None:
        session = attachment.session
        parcel = self._parcel(session, stream, piece)
        stream.parcel = parcel.number
        assert attachment.handle is not None
        parcel.handles.append(attachment.handle)

    def _parcel(self, session: Session, stream: Stream, piece: Piece) -> Parcel:
        """The parcel that takes this piece to the session: one that waits, if it leaves late enough for the stream."""
        for count in range(len(session.waiting) + 1):
            slot = (stream.key_id, piece.low, piece.to, piece.times, count)
            parcel = session.waiting.get(slot)
            if parcel is None:
                break
            if parcel.number >= stream.parcel:
                return parcel
        parcel = session.waiting[slot] = Parcel(
            piece.key, piece.first, piece.low, piece.to, piece.chunk, piece.time_ms, piece.times
        )
        self._parcels += 1
        parcel.number = self._parcels
        session.under_way_bytes += len(piece.chunk)
        self.dirty[session.number] = session
        return parcel

    def sent(self, session: Session, chunk_bytes: int) -> None:
        """The transport took deliveries: there is room again for the feeds that wanted it."""
        session.under_way_bytes -= chunk_bytes
        self.state.counters.deliveries += session.taken
        session.taken = 0
        if session.stalled and session.has_room:
            for feed in session.stalled.values():
                self.wake(feed)
            session.stalled.clear()

    # Acks.

    def ack(self, attachment: Attachment, key_id: bytes, first: int, to: int) -> None:
        """Offsets first <= o < to of this key are done, as far as this attachment has them out."""
        feed = attachment.feed
        stream = feed.streams.get(key_id)
        held = attachment.messages
        if stream is None or first >= to or not stream.settle(attachment, first, to):
            return
        self.state.counters.acks += held - attachment.messages
        feed.unflushed[key_id] = stream
        self.unflushed[feed.queue_id] = feed
        if attachment.handle is None and not attachment.messages:
            self.end_pull(attachment)
        if feed.lagging:
            self.wake(feed)

    def take_acks(self, acks_max: int) -> list[Acked]:
        """Acks to journal now, by queue. Each must come back through `acks_applied`."""
        acks: list[Acked] = []
        while self.unflushed and len(acks) < acks_max:
            queue_id, feed = self.unflushed.popitem()
            before = len(acks)
            for stream in feed.unflushed.values():
                acks += [Acked(queue_id, stream.key_id, low, high) for low, high in stream.take_unflushed()]
            feed.unflushed = {}
            if len(acks) > before:  # else its streams went: nothing of it will come back
                feed.unapplied_acks += 1
            else:
                self.forget_if_idle(feed)
        return acks

    def acks_applied(self, queue_ids: Iterable[bytes]) -> None:
        """These queues' acks are in the tables."""
        for queue_id in queue_ids:
            feed = self.feeds.get(queue_id)
            if feed is None:
                continue
            feed.unapplied_acks -= 1
            for stream in [stream for stream in feed.streams.values() if stream.finished]:
                if not stream.out and stream.key_id not in feed.unflushed:
                    self._remove_stream(stream)
            self.forget_if_idle(feed)

    def acks_failed(self, acks: Iterable[Acked]) -> None:
        """These are not in the journal: they are to be taken again."""
        for queue_id, group in groupby(acks, attrgetter("queue_id")):
            feed = self.feeds.get(queue_id)
            if feed is None:
                continue
            feed.unapplied_acks -= 1
            for ack in group:
                stream = feed.streams.get(ack.key_id)
                if stream is not None:
                    stream.untake(ack.first, ack.to)
                    feed.unflushed[ack.key_id] = stream
                    self.unflushed[queue_id] = feed
            self.forget_if_idle(feed)
