"""Takes in what records did: chunks, bindings that began or ended, acks in changes, purged backlogs, messages that
came back, dropped queues.

Belongs here: which register and stream changes by which event. Not here: giving chunks (growing), reading logs (pump).
"""

from __future__ import annotations

from shoal_slice_node.core.apply.effects import AckedByChange, Bound, Effects, Grown, Purged, Retried, Unbound
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.dispatch.attaching import Attaching
from shoal_slice_node.core.dispatch.growing import Growing
from shoal_slice_node.core.dispatch.loading import add_stream
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.dispatch.streams import Stream


class Applying:
    """Brings dispatch level with the tables, after each record."""

    def __init__(self, registry: Registry, growing: Growing, attaching: Attaching, acks: AcksInFlight) -> None:
        self._registry = registry
        self._growing = growing
        self._attaching = attaching
        self._acks = acks

    def applied(self, effects: Effects) -> None:
        """Takes in what a record did. Chunks may wait for their turn, and sessions that attach anew: a binding begins
        or ends at once."""
        self._growing.begin_record()
        self._attaching.begin_record()
        self._registry.releases.begin_record()
        acked = self._acked_keys(effects)
        for name, _ in effects.created:
            self._attaching.created(name)
        for event in effects.events:
            if isinstance(event, Grown):
                if event.key_id in acked:
                    self._let_lag(event.key_id, acked[event.key_id])
                self._growing.grown(event)
            elif isinstance(event, Bound):
                self._bound(event)
            elif isinstance(event, Unbound):
                self._unbound(event)
            elif isinstance(event, Retried):
                self._retried(event)
            elif isinstance(event, AckedByChange):
                self._acks.acked_by_change(event)
            else:
                assert isinstance(event, Purged), f"an event that dispatch does not know: {type(event).__name__}"
                self._purged(event)
        for queue_id in effects.dropped:
            feed = self._registry.feeds.get(queue_id)
            if feed is not None:
                self._attaching.dissolve(feed)
        ended = [event.queue_id for event in effects.events if isinstance(event, Purged | AckedByChange | Unbound)]
        self._registry.releases.end_record()
        for queue_id in dict.fromkeys(ended):
            self._after_end_of_out(queue_id)

    @staticmethod
    def _acked_keys(effects: Effects) -> dict[bytes, list[bytes]]:
        """Returns the queues that the record acks messages for, by key."""
        acked: dict[bytes, list[bytes]] = {}
        for event in effects.events:
            if isinstance(event, AckedByChange):
                acked.setdefault(event.key_id, []).append(event.queue_id)
        return acked

    def _let_lag(self, key_id: bytes, queue_ids: list[bytes]) -> None:
        """Lets queues read a chunk from the log, as the record that published it may have acked some of it, too."""
        for queue_id in dict.fromkeys(queue_ids):
            feed = self._registry.feeds.get(queue_id)
            stream = None if feed is None else feed.streams.get(key_id)
            if feed is not None and stream is not None:
                feed.set_lagging(stream)

    def _bound(self, bound: Bound) -> None:
        registry = self._registry
        registry.marks.cut(bound.queue_id, bound.key_id, bound.start)
        feed = registry.feeds.get(bound.queue_id)
        if feed is None:
            return  # Only its marks were kept, or an event of the same record ended what it was kept for.
        stream = feed.streams.get(bound.key_id)
        if stream is None and feed.loading:
            add_stream(registry.state, feed, bound.key_id, registry.register)
            if (made := feed.streams.get(bound.key_id)) is not None:
                made.join_parcel(feed.joins_behind)
            registry.wake(feed)
            return
        if stream is None:
            stream = Stream(feed, bound.key_id, bound.key, bound.start)
            stream.join_parcel(feed.joins_behind)
            feed.add_stream(stream)
            registry.register(stream)
        elif stream.end:
            stream.rebind(bound.start)
        registry.by_key.setdefault(bound.key_id, {})[feed.queue_id] = stream
        if stream.returned or stream.next < bound.head:
            feed.set_lagging(stream)
            registry.wake(feed)

    def _unbound(self, unbound: Unbound) -> None:
        registry = self._registry
        feed = registry.feeds.get(unbound.queue_id)
        stream = None if feed is None else feed.streams.get(unbound.key_id)
        if feed is None or stream is None:
            return
        registry.stop_waking(stream)
        if unbound.end:
            stream.unbind(unbound.end)
            if stream.next < stream.end:
                feed.set_lagging(stream)
                registry.wake(feed)
        else:
            registry.remove_stream(stream)
            feed.join_behind(registry.last_parcel)

    def _purged(self, purged: Purged) -> None:
        """Drops a stream's backlog. Messages on their way to a session still go; their acks will find nothing."""
        feed = self._registry.feeds.get(purged.queue_id)
        stream = None if feed is None else feed.streams.get(purged.key_id)
        if feed is None or stream is None:
            return
        self._registry.forget_out(stream)
        stream.purge(purged.to)
        feed.forget_work(stream)

    def _retried(self, retried: Retried) -> None:
        feed = self._registry.feeds.get(retried.queue_id)  # An event of the same record may have ended its last rest.
        stream = None if feed is None else feed.streams.get(retried.key_id)
        if stream is not None and self._registry.returns.retried(stream, retried):
            self._acks.note_done(stream)

    def _after_end_of_out(self, queue_id: bytes) -> None:
        """Wakes the feed of a queue that was purged, unbound, or acked by a change: windows have opened, and no ack of
        a session will say so. Nothing may rest any more."""
        feed = self._registry.feeds.get(queue_id)
        if feed is not None:
            after_release(self._registry, feed)
