"""Checks what must be true of a slice after every step: it gave only what may be given, no binding is silent, and the
counters of dispatch equal a count from scratch.

`gave` tells the models what is new; `sound` compares everything; `served` checks that all that could come has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from shoal_slice_node.core.dispatch import out_of_turn, room_line
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.range_room import counted_as_pulled
from shoal_slice_node.core.dispatch.releases import _Release
from shoal_slice_node.core.dispatch.served import silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import (
    ATTACHMENT_BYTES,
    ENDED_HANDLE_BYTES,
    FEED_BYTES,
    GROWTH_BYTES,
    HANDLE_BYTES,
    RANGE_BYTES,
    RESET_BYTES,
    SMALL_BEYOND_PARTS,
    STREAM_BYTES,
)
from shoal_slice_node.core.read.reading import describe_queue, peek
from shoal_slice_node.core.turns import finish
from tests.fuzz.given import Holder, Way
from tests.fuzz.node import Node
from tests.fuzz.owed import Life
from tests.fuzz.watching import used_bytes
from tests.slice_node.core_driver import within_window

_ALL = 1 << 40


class Checks:
    """Checks a node. `_leaving`: streams of ended feeds whose messages that are out are still being taken back."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaving: dict[Stream, None] = {}
        self._known: dict[Stream, None] = {}
        self._of = node.dispatcher
        node.on_change = self.gave

    def _streams(self) -> list[tuple[Life, Feed, Stream]]:
        owed = self._node.owed
        found = []
        for feed in self._node.dispatcher.feeds.values():
            life = owed.lives.get(feed.name)
            assert life is not None and life.queue_id == feed.queue_id, f"{feed.name!r} was dropped and has a feed"
            found += [(life, feed, stream) for stream in feed.streams.values()]
        return found

    def gave(self) -> None:
        """Compares the messages that are out with what consumers hold in the model. Further messages that are out are
        new; all others must agree."""
        given = self._node.given
        for life, _, stream in self._streams():
            held = given.held.get((life.number, stream.key), {})
            if not (stream.out or held):
                continue
            out: dict[int, Attachment] = {}
            for entry in stream.out:
                if entry.attachment in given.left:
                    continue
                for offset in range(entry.first, entry.to):
                    assert offset not in out, f"{stream.key!r} {offset} is out twice"
                    out[offset] = entry.attachment
                    holder = Holder(entry.attachment, entry.lease)
                    if offset not in held:
                        self._node.owed.deliveries.check_given(life, stream.key, offset)
                        handle = entry.attachment.handle
                        given.gave(life, stream.key, offset, holder, entry.attachment.session.number, handle)
                        held = given.holds(life, stream.key)
                    assert held[offset] == holder, f"{stream.key!r} {offset} is given to two at a time"
            lost = held.keys() - out.keys()
            assert not lost, f"{stream.key!r} {sorted(lost)} of {life.name!r} are forgotten while consumers hold them"
        self._gave_briefly()

    def _gave_briefly(self) -> None:
        """Notes messages that one record published and then dropped: they may be on their way."""
        node = self._node
        brief, node.owed.brief = node.owed.brief, []
        for life, key, offset in brief:
            for number, client in node.clients.items():
                session = client.session
                waiting = Counter(
                    handle
                    for parcel in session.waiting.values()
                    for handle in (parcel.handles if parcel.key == key and parcel.low <= offset < parcel.to else ())
                )
                for handle, count in waiting.items():
                    attachment = session.attachments.get(handle)
                    if attachment is not None and attachment.feed.queue_id == life.queue_id:
                        known = node.given.ways.get(number, {}).get(Way(handle, life.number, key, offset), ())
                        for _ in range(count - len(known)):
                            node.given.way(life, key, offset, number, handle)

    def sound(self) -> None:
        """Compares the whole state of dispatch with the models. To be called after every step."""
        node = self._node
        silent = [found.reason for found in silent_streams(node.dispatcher, node.dispatcher.feeds.values())]
        assert not silent, f"silent: {silent}"
        streams = self._streams()
        heads: dict[bytes, int] = {}
        for life, feed, stream in streams:
            self._stream(life, feed, stream, heads)
        self._without_feed()
        self._memory([stream for _, _, stream in streams])
        self._ways()

    def _stream(self, life: Life, feed: Feed, stream: Stream, heads: dict[bytes, int]) -> None:
        where = f"{stream.key!r} of {life.name!r}"
        head = heads.get(stream.key_id)
        if head is None:
            found = self._node.state.key_by_id(stream.key_id)
            assert found is not None or stream.finished, f"{where}: its key vanished"
            head = heads[stream.key_id] = found[1].head if found is not None else stream.end
        end = stream.end or head
        done = {offset for low, high in stream.done.pairs() for offset in range(low, high)} if stream.done else set()
        parts = [offset for entry in stream.out for offset in range(entry.first, entry.to)]
        assert parts == sorted(parts), where
        for resting in stream.resting or ():
            parts += range(resting.first, resting.to)
        releases = [one for one in self._releases() if one.stream is stream]
        released = sum(entry.to - entry.first for one in releases for entry in one.taken)
        released += sum(resting.to - resting.first for one in releases for resting in one.rests)
        assert len(parts) + released == stream.out_messages, where
        again = [offset for first, to, _ in stream.returned or () for offset in range(first, to)]
        assert again == sorted(again), f"{where}: {again} will be given again out of order"
        parts += again
        below = [offset for offset in range(stream.cursor, min(stream.next, end)) if offset not in done]
        assert sorted(parts) == below, f"{where}: out, resting and returned {sorted(parts)}, of {below}"
        owed = set(below).union(offset for offset in range(stream.next, end) if offset not in done)
        assert owed == life.owes(stream.key), f"{where}: it still has {owed}, owed are {life.owes(stream.key)}"
        flushing = self._node.dispatcher.acks._flushing
        busy = stream.out or stream.acks_under_way or stream.key_id in feed.unflushed
        assert busy or not stream.finished or any(stream in left for _, left in flushing), f"{where}: over, and kept"
        watched = self._node.dispatcher.by_key.get(stream.key_id, {}).get(feed.queue_id) is stream
        assert watched == (stream.key in life.bound) == (not stream.end), where

    def _releases(self) -> list[_Release]:
        """Returns what records took out of streams and is not released yet."""
        return list(self._node.dispatcher.registry.releases.waiting)

    def _without_feed(self) -> None:
        node = self._node
        feeds = node.dispatcher.feeds
        for life in node.owed.lives.values():
            feed = feeds.get(life.queue_id)
            if feed is None:
                assert not any(life.acked.values()), f"acks of {life.name!r} are forgotten"
                assert not any(node.given.holds(life, key) for key in life.todo), f"{life.name!r} forgets what is out"
            elif not feed.loading:
                there = {stream.key for stream in feed.streams.values()}
                lacking = {*life.bound, *(key for key in life.todo if life.owes(key))} - there
                assert not lacking, f"{life.name!r} is loaded without {lacking}"

    def _memory(self, streams: list[Stream]) -> None:
        node = self._node
        dispatcher, shares = node.dispatcher, node.dispatcher.shares
        if self._of is not self._node.dispatcher:  # After a crash.
            self._of, self._leaving, self._known = self._node.dispatcher, {}, {}
        self._leaving = {s: None for s in (*self._leaving, *self._known) if s.out and s not in set(streams)}
        self._known = dict.fromkeys(streams)
        owed: Counter[Session] = Counter()
        messages: Counter[Attachment] = Counter()
        body_bytes: Counter[Attachment] = Counter()
        out = [stream.out for stream in (*streams, *self._leaving)] + [one.taken for one in self._releases()]
        for entries in out:
            for entry in entries:
                owed[entry.attachment.session] += 1
                messages[entry.attachment] += entry.to - entry.first
                body_bytes[entry.attachment] += entry.body_bytes
        under_leases = {entry.lease for entries in out for entry in entries if entry.lease}
        leases = Counter(lease.attachment.session for lease in under_leases)
        sessions = [*(client.session for client in node.clients.values()), node.shared]
        for session in {*sessions, *owed}:
            assert session.owed == owed[session], (
                f"session {session.number} owes {owed[session]}, counts {session.owed}"
            )
            assert session.leases.out == leases[session], f"session {session.number} miscounts its leases"
            for attachment in (*session.attachments.values(), *session.pullers.values()):
                found = attachment.messages, attachment.body_bytes
                assert found == (messages[attachment], body_bytes[attachment]), f"attachment counts {found}"
        for number, client in node.clients.items():
            waiting = sum(parcel.cost_bytes for parcel in client.session.waiting.values())
            assert client.session.under_way_bytes == waiting + client.writing, f"session {number} holds {waiting}"
        ended = [*dispatcher.attaching.closing, *dispatcher.attaching.owing]
        clients = [client.session for client in node.clients.values()]
        under_way = [session.under_way_bytes for session in {*clients, *ended}]
        for session in ended:
            assert session.under_way_bytes >= session.not_sent._kept_bytes, f"session {session.number} keeps more"
        assert shares.deliveries.used_bytes == sum(under_way) and shares.holding == sum(map(bool, under_way))
        costs = [parcel.cost_bytes for client in node.clients.values() for parcel in client.session.waiting.values()]
        kept = [session.under_way_bytes for session in ended]  # One of its parcels may be the one beyond the limit.
        one_more = max((*costs, *kept, *(client.writing for client in node.clients.values())), default=0)
        limit_bytes = shares.deliveries.limit_bytes
        beyond_bytes = limit_bytes // SMALL_BEYOND_PARTS + limit_bytes // vars(out_of_turn)["OUT_OF_TURN_PARTS"]
        most = limit_bytes + beyond_bytes + one_more + HANDLE_BYTES * len(dispatcher.feeds)
        assert shares.deliveries.used_bytes <= most, (
            f"{shares.deliveries.used_bytes} bytes are under way, {most} may be"
        )
        _check_room_line(shares, {*clients, *ended})
        everyone = {*sessions, *dispatcher.attaching.closing}
        attached = ATTACHMENT_BYTES * sum(len(session.by_queue) + len(session.pullers) for session in everyone)
        attached += ATTACHMENT_BYTES * sum(session.detached.noted for session in everyone)
        attached += ENDED_HANDLE_BYTES * sum(len(session.ended_handles) for session in everyone)
        attached += RESET_BYTES * sum(session.resets.counted for session in everyone)
        attached += sum(FEED_BYTES + STREAM_BYTES * feed.streams_counted for feed in dispatcher.feeds.values())
        attached += sum(feed.names_bytes for feed in dispatcher.feeds.values())
        streams = [stream for feed in dispatcher.feeds.values() for stream in feed.streams.values()]
        attached += RANGE_BYTES * sum(len(stream.done or ()) + len(stream.returned or ()) for stream in streams)
        attached += used_bytes(node.node.watching)
        room, feeds = dispatcher.registry.range_room, [feed for feed in dispatcher.feeds.values() if feed.ranges]
        assert room.feeds.keys() == set(feeds) and room._ranges == sum(feed.ranges for feed in feeds)
        assert room.pulled_bytes == RANGE_BYTES * sum(map(counted_as_pulled, feeds)), "pulled ranges are miscounted"
        assert shares.attached.used_bytes == attached, f"attached: {shares.attached.used_bytes}, counted {attached}"
        self._rests(streams)
        spreads = dispatcher.growing.spreads.values()
        waiting = sum(len(grown.chunk) + GROWTH_BYTES for spread in spreads for grown in spread.chunks)
        assert dispatcher.growing._waiting_bytes == waiting, "chunks that wait for turns are miscounted"

    def _rests(self, streams: list[Stream]) -> None:
        """Checks that what rests of each queue is counted: stretches, and their messages."""
        rests: Counter[Feed] = Counter()
        resting_messages: Counter[Feed] = Counter()
        for stream, some in [
            *((stream, stream.resting or ()) for stream in streams),
            *((release.stream, release.rests) for release in self._releases()),
        ]:
            rests[stream.feed] += len(some)
            resting_messages[stream.feed] += sum(one.to - one.first for one in some)
        for feed in self._node.dispatcher.feeds.values():
            found = feed.resting, feed.resting_messages
            assert found == (rests[feed], resting_messages[feed]), "what rests is miscounted"

    def _ways(self) -> None:
        """Checks that no message on its way to a session is lost, and that the session is told of it."""
        node = self._node
        for number, client in node.clients.items():
            session = client.session
            waiting = sum(
                (parcel.to - parcel.low)
                * sum(session.detached.owner(handle, parcel) is None for handle in parcel.handles)
                for parcel in session.waiting.values()
                if parcel.first  # Live chunks may be lost.
            )
            ways = sum(len(turns) for way, turns in node.given.ways.get(number, {}).items() if way.handle is not None)
            assert waiting == ways, f"{waiting} messages wait for session {number}, {ways} were given"
            told = client.awake or number in node.dispatcher.dirty
            assert told or not session.to_send, f"session {number} is not told that something waits"

    def served(self) -> None:
        """Checks, when dispatch is at rest, that each message that is owed and that no consumer has is on its way to a
        consumer with room, unless it waits for the delay of a nack: the end of a run waits for these."""
        for life, feed, stream in self._streams():
            assert all(map(within_window, feed.attachments.values())), "a window is exceeded"
            room = [a for a in feed.attachments.values() if a.window_open and a.session.has_room]
            held = self._node.given.holds(life, stream.key)
            owed = life.owes(stream.key)
            resting = {o for one in (stream.resting or ()) for o in range(one.first, one.to)}
            rest = sorted(owed - held.keys() - resting)
            if not (room and rest):
                continue
            ranges = _ranges(owed, self._node.owed.keys[stream.key].head, stream)
            full = ranges + len(held) + len(resting) >= self._node.owed.bounds.done_ranges
            full = full or (ranges > 0 and self._node.dispatcher.shares.attached.free_bytes < 0)
            assert full, f"{stream.key!r} {rest} of {life.name!r} never come to {len(room)} with room"
            assert min(owed) in held.keys() | resting, f"{stream.key!r} {min(owed)}, the lowest, never comes"

    def tables(self) -> None:
        """Checks every invariant of the tables, and that describe and peek agree with the model for each queue."""
        node = self._node
        problems = list(check_tables(node.tables, local_known=False))
        assert not problems, "; ".join(map(str, problems))
        for life in node.owed.lives.values():
            todo = {(key, offset) for key, offsets in life.todo.items() for offset in offsets}
            described = describe_queue(node.state, life.name, 0)
            sizes = sum(len(node.owed.keys[key].log[offset][0]) for key, offset in todo)
            assert (described.messages, described.body_bytes) == (len(todo), sizes), f"depth of {life.name!r}"
            assert described.binding_count == len(life.bound) and described.incarnation == life.incarnation
            kept = node.owed.farewells.kept.get(life.name)
            shown = (described.farewell.key, described.farewell.after_s) if described.HasField("farewell") else None
            assert shown == (kept and (kept.key, kept.after_s)), f"farewell of {life.name!r}"
            peeked = [
                (delivery.key, offset)
                for delivery in finish(peek(node.state, life.queue_id, _ALL, _ALL))
                for offset in range(delivery.low, delivery.to)
            ]
            assert sorted(peeked) == sorted(todo), f"peek into {life.name!r}"


def _ranges(owed: set[int], head: int, stream: Stream) -> int:
    """Returns the number of done ranges above the lowest offset that is owed."""
    end = stream.end or head
    return sum(offset not in owed and offset - 1 in owed for offset in range(min(owed), end))


def _check_room_line(shares: DispatchShares, everyone: Iterable[Session]) -> None:
    """What the lines know of connections is what their sessions hold."""
    for session in everyone:
        known = {attachment.feed.queue_id for attachment in session.attachments.values()}
        small, large = session.turned_away.small.keys(), session.turned_away.large.keys()
        assert small | large <= known, f"session {session.number} waits for a queue it left"
        assert session.turned_away._offsets.keys() == large
    line, holding, holding_large, held_large_bytes = shares.line, Counter[str](), Counter[str](), 0
    held_out_of_turn_bytes = sum(session.held_out_of_turn_bytes for session in everyone)
    parts = vars(out_of_turn)["OUT_OF_TURN_PARTS"]
    assert line.out_of_turn.held_bytes == held_out_of_turn_bytes <= shares.deliveries.limit_bytes // parts
    for session in everyone:
        assert 0 <= session.held_large_bytes <= session.under_way_bytes
        assert 0 <= session.held_out_of_turn_bytes <= session.under_way_bytes
        held_large_bytes += session.held_large_bytes
        if session.under_way_bytes:
            (holding_large if session.held_large_bytes else holding)[session.connection] += 1
    assert line._holding == holding and line._holding_large == holding_large
    assert line.held_large_bytes == held_large_bytes + shares.leaving_bytes
    many = {name for name, held in holding.items() if held >= vars(room_line)["SMALL_HOLDERS_MAX"]}
    for one, late in ((line._small, many), (line._large, set(holding_large))):
        assert all(one.connections.values()) and one.first.keys() == one.connections.keys() - late
        assert one.new.keys() == one.connections.keys() - holding.keys() - holding_large.keys()
        assert one.busy.keys() == one.first.keys() - one.new.keys()
