"""Gives a key's new chunk to every stream that is level with the key: at once if they are few, else in turns.

A stream that was not reached yet is behind its key. That is safe at every moment: when its turn comes, it is level with
the chunk, or it was made to lag meanwhile and reads the log. If too much waits for turns, chunks are let go and the key
is swept: streams that are behind are made to lag. Live chunks wait in the same line; those let go are lost.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice

from shoal_slice_node.core.apply.effects import Grown
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.live import LiveChunk, give_live
from shoal_slice_node.core.dispatch.out_of_line import finds_any, pick_any
from shoal_slice_node.core.dispatch.parcels import Parcel, parcel_bytes
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Out
from shoal_slice_node.core.limits import (
    DONE_RANGES_MAX,
    GIVEN_AT_ONCE_MAX,
    GROWTH_BYTES,
    GROWTHS_WAITING_BYTES_MAX,
    HANDLE_BYTES,
    LEAVING_LOOKS_PER_STEP,
    LIVE_WAITING_BYTES_MAX,
)


class _Spread:
    """Keeps what one key's streams still have to get. `sweep`: chunks were let go; after the chunks that are left,
    streams that are behind are made to lag. `remaining`: streams left for the chunk, or for the sweep, under way.
    `waiting_bytes`: memory of `chunks`."""

    __slots__ = ("chunks", "grown", "remaining", "sweep", "waiting_bytes")

    def __init__(self) -> None:
        self.chunks: deque[Grown | LiveChunk] = deque()
        self.grown: Grown | LiveChunk | None = None
        self.remaining: Iterator[Stream] | None = None
        self.sweep = False
        self.waiting_bytes = 0


class Growing:
    """Gives new chunks to streams. `spreads`: keys with chunks that wait, in turn."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.spreads: OrderedDict[bytes, _Spread] = OrderedDict()
        self._waiting_bytes = 0
        self._left = 0
        self._looks_left = 0
        """At consumers, and at what is out, to find what comes back. Beyond, the pump looks in its turns."""

    def begin_record(self) -> None:
        """Begins a record: its chunks may be given to GIVEN_AT_ONCE_MAX streams at once."""
        self._left = GIVEN_AT_ONCE_MAX
        self._looks_left = LEAVING_LOOKS_PER_STEP

    def grown(self, grown: Grown) -> None:
        streams = self._registry.by_key.get(grown.key_id)
        if not streams:
            return
        spread = self.spreads.get(grown.key_id)
        if spread is None and len(streams) <= self._left:
            self._left -= len(streams)
            self._give(grown, streams.values())
            return
        self._spread(spread, grown)

    def live(self, live: LiveChunk) -> None:
        """Gives a live chunk, behind what the key's streams still have to get. It is lost if that is much."""
        streams = self._registry.by_key.get(live.key_id)
        if not streams:
            return
        spread = self.spreads.get(live.key_id)
        if spread is None and len(streams) <= self._left:
            self._left -= len(streams)
            give_live(self._registry, live, streams.values())
            return
        if spread is None or spread.waiting_bytes < LIVE_WAITING_BYTES_MAX:
            self._spread(spread, live)

    def _spread(self, spread: _Spread | None, grown: Grown | LiveChunk) -> None:
        if spread is None:
            spread = self.spreads[grown.key_id] = _Spread()
        spread.chunks.append(grown)
        self._count(spread, len(grown.chunk) + GROWTH_BYTES)
        if self._waiting_bytes > GROWTHS_WAITING_BYTES_MAX:
            self._let_go(spread)

    def _let_go(self, spread: _Spread) -> None:
        self._count(spread, -spread.waiting_bytes)
        spread.chunks.clear()
        spread.sweep = True

    def _count(self, spread: _Spread, size_bytes: int) -> None:
        """Counts memory of chunks that wait, or (below 0) do not any more."""
        spread.waiting_bytes += size_bytes
        self._waiting_bytes += size_bytes

    def turn(self, streams_max: int) -> None:
        """Goes on with up to `streams_max` streams of the key that waited longest."""
        self._looks_left = LEAVING_LOOKS_PER_STEP
        key_id, spread = self.spreads.popitem(last=False)
        if spread.remaining is None and not self._begin(key_id, spread):
            return
        assert spread.remaining is not None
        next_ones = list(islice(spread.remaining, streams_max))
        if len(next_ones) < streams_max:
            spread.remaining = None
        consuming = self._registry.by_key.get(key_id, {})  # Some may have left since they were listed.
        some = [stream for stream in next_ones if consuming.get(stream.feed.queue_id) is stream]
        if spread.grown is None:
            self._sweep(key_id, some)
        elif isinstance(spread.grown, LiveChunk):
            give_live(self._registry, spread.grown, some)
        else:
            self._give(spread.grown, some)
        self.spreads[key_id] = spread

    def _begin(self, key_id: bytes, spread: _Spread) -> bool:
        """Begins the next chunk of the key, or its sweep. Returns False if nothing is left."""
        if spread.chunks:
            grown = spread.grown = spread.chunks.popleft()
            self._count(spread, -len(grown.chunk) - GROWTH_BYTES)
            if isinstance(grown, Grown) and has_expired(grown.expires_ms, self._registry.expiry_clock_ms):
                spread.grown = None  # It expired while it waited: streams meet it in the log.
        elif spread.sweep:
            spread.grown, spread.sweep = None, False
        else:
            return False
        spread.remaining = iter(list(self._registry.by_key.get(key_id, {}).values()))
        return True

    def _sweep(self, key_id: bytes, streams: Iterable[Stream]) -> None:
        found = self._registry.state.key_by_id(key_id)
        if found is None:
            return
        head = found[1].head
        for stream in streams:
            if not stream.lagging and stream.next < (stream.end or head) and not stream.feed.gone:
                stream.feed.set_lagging(stream)
                self._registry.wake(stream.feed)

    def _is_held_back(self, stream: Stream) -> bool:
        """Returns whether something of a stream comes back first, or may, where no more is to be looked at."""
        if self._looks_left <= 0:
            return True
        loses, looks = self._registry.leaving.loses(stream)
        self._looks_left -= looks
        if not loses:
            return False
        self._looks_left -= len(stream.out)
        return stream.comes_back

    def _give(self, grown: Grown, streams: Iterable[Stream]) -> None:
        """Gives a chunk to streams.

        This is the hot path: what Stream.give_on_from, Stream.give and Registry.give do is written out here, with the
        invariants that they keep. So this function, and no other, writes fields of streams, sessions, attachments and
        shares (test_tidy.py allows it): 0.95 us a delivery in plain Python (1,000 queues, 8 sessions), not 1.8 to 2.0.
        """
        key_id, key, first, messages, body_bytes, time_ms, chunk, expires_ms = grown
        registry, line = self._registry, self._registry.shares.line
        is_crowded, something_comes_back = line.is_crowded, bool(registry.leaving)
        to, cost_bytes = first + messages, parcel_bytes(chunk, key)
        slot = (key_id, first, to, 0, 0, 0)
        parcels: dict[Session, Parcel] = {}  # The last one of each session that takes this chunk.
        given, more, more_bytes = 0, messages - 1, body_bytes - body_bytes // messages  # `more`: all but the last.
        for stream in streams:
            if stream.lagging or stream.next != first:
                continue
            feed = stream.feed
            if something_comes_back and stream.out and self._is_held_back(stream):
                feed.set_lagging(stream)
                registry.wake(feed)  # The pump gives it behind what comes back.
                continue
            attachment: Attachment | None = feed.sole
            if attachment is not None:
                session = attachment.session
                if (
                    is_crowded
                    or attachment.messages + more >= attachment.window_messages
                    or attachment.body_bytes + more_bytes >= attachment.window_bytes
                    or session.under_way_bytes >= session.room_bytes
                    or session.owed >= session.owed_max
                ):
                    attachment = pick_any(feed, cost_bytes, more, more_bytes)
            else:
                attachment = None if feed.ack_timeout_ms else pick_any(feed, cost_bytes, more, more_bytes)
            if attachment is None or (
                (stream.done or stream.out_messages + messages > DONE_RANGES_MAX) and stream.messages_allowed < messages
            ):
                if not feed.gone:
                    feed.set_lagging(stream)
                    if attachment is not None or feed.ack_timeout_ms or _may_get_some(feed, more, cost_bytes):
                        registry.wake(feed)  # The pump gives, in parts, looks at all, and notes the time.
                continue
            session = attachment.session
            stream.next = to
            stream.out_messages += messages
            out = stream.out
            last = out[-1] if out else None
            if last is not None and last.to == first and last.attachment is attachment and not last.times:
                last.to = to
                last.body_bytes += body_bytes
            else:
                out.append(Out(first, to, body_bytes, attachment, 0, None))
                session.owed += 1
            attachment.messages += messages
            attachment.body_bytes += body_bytes
            parcel = parcels.get(session)
            if parcel is None or parcel.number <= stream.parcel:
                parcel = session.waiting.get(slot)
                if parcel is None or parcel.number <= stream.parcel or parcel.number <= session.nacks_taken.last_parcel:
                    part = ChunkPart(key, first, first, to, body_bytes, time_ms, chunk, 0, expires_ms)
                    parcel = registry.parcel(session, stream, part)
                    is_crowded = line.is_crowded
                parcels[session] = parcel
            stream.parcel = parcel.number
            assert attachment.handle is not None
            parcel.handles.append(attachment.handle)
            session.under_way_bytes += HANDLE_BYTES
            given += 1
        registry.shares.deliveries.used_bytes += given * HANDLE_BYTES


def _may_get_some(feed: Feed, more: int, cost_bytes: int) -> bool:
    """Returns whether the pump may find somebody for a chunk where `pick_any` found nobody: it asked a few of many, or
    for all of its messages, `more` than one."""
    return feed.has_many or (more > 0 and finds_any(feed, cost_bytes))
