"""Offers in one place what the rest of the node asks of dispatch. Its parts do the work.

registry        knows what is consumed                    attaching        begins and ends consumption
growing         gives new chunks to streams level with    acks_in_flight   brings acks to the journal
                their key
filling         reads logs for streams that lag           served           checks that no binding is forgotten
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Bound, Effects, Grown, Purged, Unbound
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.dispatch.attaching import Attaching
from shoal_slice_node.core.dispatch.feeds import Attachment, Feed
from shoal_slice_node.core.dispatch.filling import Budget, fill
from shoal_slice_node.core.dispatch.growing import Growing
from shoal_slice_node.core.dispatch.loading import add_stream
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import (
    DISSOLVED_AT_ONCE_MAX,
    PUMP_TURN_BINDINGS,
    PUMP_TURN_BYTES,
    PUMP_TURN_HANDLES,
    PUMP_TURN_ROWS,
)


class Dispatcher:
    """Dispatches messages, on the leader. `dirty`: sessions with something to send. Each `turn` takes a bounded step of
    the work that is left."""

    def __init__(self, state: State, shares: DispatchShares | None = None) -> None:
        self.state = state
        self.registry = Registry(state, shares or DispatchShares())
        self.attaching = Attaching(self.registry)
        self.growing = Growing(self.registry)
        self.acks = AcksInFlight(self.registry)
        self._next_job = 0

    @property
    def shares(self) -> DispatchShares:
        return self.registry.shares

    @property
    def dirty(self) -> dict[int, Session]:
        return self.registry.dirty

    @property
    def feeds(self) -> dict[bytes, Feed]:
        return self.registry.feeds

    @property
    def by_key(self) -> dict[bytes, dict[bytes, Stream]]:
        return self.registry.by_key

    # Sessions.

    def attach(self, session: Session, name: bytes, handle: int, window_messages: int, window_bytes: int) -> int:
        """See Attaching.attach."""
        return self.attaching.attach(session, name, handle, window_messages, window_bytes)

    def detach(self, session: Session, handle: int) -> None:
        """See Attaching.detach."""
        self.attaching.detach(session, handle)

    def close(self, session: Session) -> None:
        """See Attaching.close."""
        self.attaching.close(session)

    def ack(self, attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
        """See AcksInFlight.ack."""
        return self.acks.ack(attachment, key_id, first, to)

    def take(self, session: Session, bytes_max: int) -> tuple[list[wire.Delivery], int]:
        """Returns deliveries for the transport, and the bytes to pass to `sent` when the transport has them."""
        freed = session.purge()
        if freed:
            self.registry.let_go(session, freed)
        return session.take(bytes_max)

    def sent(self, session: Session, cost_bytes: int) -> None:
        """Notes that the transport has what `take` returned."""
        self.state.counters.deliveries += session.taken
        session.taken = 0
        if not session.closed:
            self.registry.let_go(session, cost_bytes)

    def divide_owed(self, sessions: Sequence[Session]) -> None:
        """Divides the share of what is owed anew. Must be called from time to time."""
        self.shares.divide_owed(sessions)
        for session in sessions:
            self.registry.has_room_again(session)

    # What records did.

    def applied(self, effects: Effects) -> None:
        """Takes in what a record did. Only chunks may wait for their turn: a binding begins or ends at once."""
        self.growing.begin_record()
        for name, _ in effects.created:
            self.attaching.created(name)
        for event in effects.events:
            if isinstance(event, Grown):
                self.growing.grown(event)
            elif isinstance(event, Bound):
                self._bound(event)
            elif isinstance(event, Unbound):
                self._unbound(event)
            else:
                self._purged(event)
        for queue_id in effects.dropped:
            feed = self.registry.feeds.get(queue_id)
            if feed is not None:
                self.attaching.dissolve(feed, at_once=len(effects.dropped) <= DISSOLVED_AT_ONCE_MAX)
        for queue_id in dict.fromkeys(event.queue_id for event in effects.events if isinstance(event, Purged)):
            self._after_purge(queue_id)

    def _bound(self, bound: Bound) -> None:
        registry = self.registry
        feed = registry.feeds[bound.queue_id]
        stream = feed.streams.get(bound.key_id)
        if stream is None and feed.loading:
            add_stream(self.state, feed, bound.key_id, registry.watch)
            registry.wake(feed)
            return
        if stream is None:
            stream = feed.streams[bound.key_id] = Stream(feed, bound.key_id, bound.key, bound.start)
            registry.watch(stream)
        elif stream.end:
            stream.rebind(bound.start)
        registry.by_key.setdefault(bound.key_id, {})[feed.queue_id] = stream
        if stream.returned or stream.next < bound.head:
            feed.set_lagging(stream)
            registry.wake(feed)

    def _unbound(self, unbound: Unbound) -> None:
        registry = self.registry
        feed = registry.feeds[unbound.queue_id]
        stream = feed.streams.get(unbound.key_id)
        if stream is None:
            return
        registry.unwatch(stream)
        if unbound.end:
            stream.end = unbound.end
            if stream.next < stream.end:
                feed.set_lagging(stream)
                registry.wake(feed)
        else:
            registry.remove_stream(stream)

    def _purged(self, purged: Purged) -> None:
        """Drops a stream's backlog. Messages on their way to a session still go; their acks will find nothing."""
        feed = self.registry.feeds[purged.queue_id]
        stream = feed.streams.get(purged.key_id)
        if stream is None:
            return
        self.registry.forget_out(stream)
        stream.purge(purged.to)
        feed.clear_lagging(stream)
        feed.unflushed.pop(stream.key_id, None)

    def _after_purge(self, queue_id: bytes) -> None:
        """Wakes a purged queue's feed: windows have opened, and no ack will say so. Pullers may have nothing left."""
        feed = self.registry.feeds.get(queue_id)
        if feed is None:
            return
        for attachment in [puller for puller in feed.pullers.values() if not puller.messages]:
            self.registry.end_pull(attachment)
        self.registry.wake(feed)
        self.registry.forget_if_idle(feed)

    # Turns.

    @property
    def has_work(self) -> bool:
        return any(waiting for waiting, _ in self._jobs())

    def _jobs(self) -> tuple[tuple[object, str], ...]:
        """Returns each kind of work that may wait, and the method that takes a step of it."""
        attaching, registry = self.attaching, self.registry
        return (
            (registry.ready, "_fill_turn"),
            (self.growing.spreads, "_spread_turn"),
            (attaching.returning, "_return_turn"),
            (registry.roomy, "_room_turn"),
            (attaching.loading, "_load_turn"),
            (attaching.closing, "_close_turn"),
            (attaching.dissolving, "_dissolve_turn"),
            (attaching.arriving, "_arrive_turn"),
            (registry.forgetting, "_forget_turn"),
        )

    def turn(self) -> bool:
        """Takes one bounded step of the next kind of work in turn. Returns False if there is none."""
        jobs = self._jobs()
        for step in range(len(jobs)):
            index = (self._next_job + step) % len(jobs)
            waiting, method = jobs[index]
            if waiting:
                self._next_job = index + 1
                getattr(self, method)()
                return True
        return False

    def _fill_turn(self) -> None:
        """Reads logs for the feed that waited longest."""
        registry = self.registry
        feed, _ = registry.ready.popitem(last=False)
        if feed.gone:
            return
        budget = Budget(PUMP_TURN_ROWS, PUMP_TURN_BYTES)
        passed_over = feed.passed_over
        for _ in range(len(feed.lagging)):
            if budget.spent or not feed.has_room:
                break
            stream = next(iter(feed.lagging.values()))
            feed.clear_lagging(stream)
            before = budget.given
            caught_up = fill(self.state, stream, feed.pick, registry.give, budget)
            if not caught_up:
                feed.set_lagging(stream)  # Behind the others: keys take turns.
            passed_over = 0 if caught_up or budget.given > before else passed_over + 1
        if budget.spent and passed_over < len(feed.lagging):
            registry.wake(feed)
            feed.passed_over = passed_over

    def _spread_turn(self) -> None:
        self.growing.turn(PUMP_TURN_HANDLES)

    def _return_turn(self) -> None:
        self.attaching.return_turn(PUMP_TURN_HANDLES)

    def _room_turn(self) -> None:
        session, _ = self.registry.roomy.popitem(last=False)
        self.registry.serve_stalled(session, PUMP_TURN_BINDINGS)

    def _load_turn(self) -> None:
        self.attaching.load_turn(PUMP_TURN_BINDINGS)

    def _close_turn(self) -> None:
        self.attaching.close_turn(PUMP_TURN_BINDINGS)

    def _dissolve_turn(self) -> None:
        self.attaching.dissolve_turn(PUMP_TURN_BINDINGS)

    def _arrive_turn(self) -> None:
        self.attaching.arrive_turn(PUMP_TURN_BINDINGS)

    def _forget_turn(self) -> None:
        forgetting = self.registry.forgetting
        streams = forgetting[0]
        for _ in range(PUMP_TURN_HANDLES):
            if not streams:
                forgetting.popleft()
                return
            self.registry.leave(streams.popitem()[1])  # Freed one by one: a large feed at once would take long.
