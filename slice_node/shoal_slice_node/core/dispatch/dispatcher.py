"""Offers in one place what the rest of the node asks of dispatch. Its parts do the work; the package lists them."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_contract.errors import exhausted
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight, NackTerms
from shoal_slice_node.core.dispatch.applying import Applying
from shoal_slice_node.core.dispatch.attaching import Attaching, Begun
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.farewells import Farewells
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.growing import Growing
from shoal_slice_node.core.dispatch.letters import Letters
from shoal_slice_node.core.dispatch.live import LiveChunk, give_live_directly
from shoal_slice_node.core.dispatch.parcels import Taken
from shoal_slice_node.core.dispatch.pausing import reads
from shoal_slice_node.core.dispatch.presence import Presence
from shoal_slice_node.core.dispatch.pump import Pump
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.returns import Returns
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.transients import Transients
from shoal_slice_node.core.dispatch.unsent import UnsentLists


class Dispatcher:
    """Dispatches messages, on the leader. `dirty`: sessions with something to send. Each `turn` takes a bounded step of
    the work that is left."""

    def __init__(self, state: State, shares: DispatchShares | None = None) -> None:
        self.state = state
        self.registry = Registry(state, shares or DispatchShares())
        self.attaching = Attaching(self.registry)
        self.growing = Growing(self.registry)
        self.acks = AcksInFlight(self.registry)
        self._applying = Applying(self.registry, self.growing, self.attaching, self.acks)
        self._pump = Pump(self.registry, self.growing, self.attaching, self.acks)
        self._of_calls: list[Session] = []

    @property
    def shares(self) -> DispatchShares:
        return self.registry.shares

    @property
    def transients(self) -> Transients:
        return self.registry.transients

    @property
    def farewells(self) -> Farewells:
        return self.registry.farewells

    @property
    def returns(self) -> Returns:
        return self.registry.returns

    @property
    def letters(self) -> Letters:
        """Returns the dead letters for other slices."""
        return self.registry.returns.letters

    @property
    def dirty(self) -> dict[int, Session]:
        return self.registry.dirty

    @property
    def feeds(self) -> dict[bytes, Feed]:
        return self.registry.feeds

    @property
    def by_key(self) -> dict[bytes, dict[bytes, Stream]]:
        return self.registry.by_key

    # Time, and those that watch.

    @property
    def expiry_clock_ms(self) -> int:
        """See Registry.expiry_clock_ms."""
        return self.registry.expiry_clock_ms

    def tell_time(self, wall_ms: int) -> None:
        """See Registry.tell_time."""
        self.registry.tell_time(wall_ms)

    def tick(self, now_ms: int) -> None:
        """Begins the time of leases of what was sent, ends leases that are over, and delays."""
        self.registry.at_once.renew()  # Nothing may have waited for the pump.
        self.registry.shares.line.tick(now_ms)
        self.registry.leases.begin_open(now_ms)
        self.registry.timeouts.tick(now_ms)
        self.registry.returns.tick(now_ms)

    def tell_presence(self, presence: Presence | None) -> None:
        """See Registry.tell_presence."""
        self.registry.tell_presence(presence)

    def in_memory(self, key_id: bytes, queues: int) -> int:
        """See Registry.in_memory."""
        return self.registry.in_memory(key_id, queues)

    # Sessions.

    def attach(self, session: Session, name: bytes, handle: int, window_messages: int, window_bytes: int) -> Begun:
        """See Attaching.attach."""
        return self.attaching.attach(session, name, handle, window_messages, window_bytes)

    def detach(self, session: Session, handle: int) -> None:
        """See Attaching.detach. Called where the client wants it."""
        self.attaching.detach(session, handle)
        if not session.closed:
            session.resets.detached(handle)

    def close(self, session: Session) -> None:
        """See Attaching.close."""
        self.attaching.close(session)

    def ack(self, attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
        """See AcksInFlight.ack."""
        return self.acks.ack(attachment, key_id, first, to)

    def nack(
        self,
        attachment: Attachment,
        key_id: bytes,
        first: int,
        to: int,
        terms: NackTerms,
        lists: UnsentLists | None = None,
    ) -> int:
        """See AcksInFlight.nack."""
        return self.acks.nack(attachment, key_id, first, to, terms, lists or UnsentLists())

    def stop(self, session: Session, handle: int) -> None:
        """Gives nothing more to a handle: also if its queue has no part here yet, and gets one later."""
        attachment, name = session.attachments.get(handle), session.awaited.get(handle)
        if attachment is not None:
            attachment.stop()
        elif name is not None:
            self.registry.await_part(session, name, handle, 0, 0)

    def take(self, session: Session, bytes_max: int) -> Taken:
        """Returns what the transport is to send; its bytes are to be passed to `sent` when the transport has it. May be
        called while a record is applied in part: what comes of it waits for a turn."""
        if session.leases:
            self.registry.leases.sends(session)
        taken = session.take(bytes_max, self.expiry_clock_ms)
        self.attaching.handles_over.note(session.detached)
        if taken.freed_bytes:
            self.registry.let_go(session, taken.freed_bytes)
        for key_id, gap in taken.told:
            self.acks.gap_leaves(session, key_id, gap)
        return taken

    def sent(self, session: Session, cost_bytes: int) -> None:
        """Notes that the transport has what `take` returned."""
        self.state.counters.deliveries += session.count_taken()
        if not session.closed:
            self.registry.let_go(session, cost_bytes)
            self.reads(session)

    def reads(self, session: Session) -> None:
        """Notes that the transport could send something now: the session reads."""
        if session.paused:
            reads(self.registry, session)

    # Queues that are here, and those whose drop is being written.

    def part_here(self, name: bytes) -> bytes | None:
        """See Registry.part_here."""
        return self.registry.part_here(name)

    def is_awaited(self, name: bytes) -> bool:
        """Returns whether a session waits to attach a queue of this name, which cannot be consumed now."""
        return name in self.registry.awaited

    def is_ending(self, queue_id: bytes) -> bool:
        """Returns whether a record is being written that drops the transient queue, as nothing consumed it."""
        return queue_id in self.registry.transients.ending

    def loaded(self, name: bytes) -> Feed | None:
        """Returns the feed of a queue of which all streams are here, as something consumes it; None if not all are."""
        queue_id = self.state.tables.queue_by_name.get(name)
        feed = None if queue_id is None else self.feeds.get(queue_id)
        return None if feed is None or feed.loading else feed

    def is_consumed(self, name: bytes) -> bool:
        """Returns whether a session has attached the queue, or has pulled messages of it that are not acked."""
        queue_id = self.state.tables.queue_by_name.get(name)
        return queue_id is not None and self.registry.is_consumed(queue_id)

    def end_soon(self, names: Sequence[bytes]) -> None:
        """Notes queues that a record drops which is being written: until it is applied, to sessions they are not
        here."""
        self.registry.ending.update(names)

    def no_longer_ending(self, names: Sequence[bytes]) -> None:
        """Notes that such a record was applied or refused. What it did not drop, or was declared anew, is attached
        where sessions wait for it."""
        self.attaching.begin_record()
        ending = self.registry.ending
        ending.subtract(names)
        for name in dict.fromkeys(names):
            if not ending[name]:
                del ending[name]
                if self.is_awaited(name) and self.part_here(name) is not None:
                    self.attaching.created(name)

    def divide_owed(self, sessions: Sequence[Session]) -> None:
        """Divides the share of what is owed anew. If it is overdrawn, the session that owes most ends, of those that
        owe much too much. Must be called from time to time, with all sessions but those that `share_among_calls` has.
        """
        self.shares.divide_owed(sessions, self._of_calls)
        for session in sessions:
            self.registry.has_room_again(session)
        if self.shares.owed.free_bytes < 0:
            self._end_largest(sessions)

    def relieve(self) -> None:
        """Begins to end sessions that consume queues with many done ranges, if these take memory that is not there. See
        Relief. Must be called from time to time."""
        self.attaching.relief.begin()

    def _end_largest(self, sessions: Sequence[Session]) -> None:
        """Ends the session that owes most, of those that owe much more than they were given."""
        too_much = [session for session in sessions if session.owes_too_much and session.ended_by is None]
        largest = max(too_much, key=lambda session: session.owed, default=None)
        if largest is not None:
            self.attaching.end(largest, exhausted("stretches of unacked offsets", largest.owed_max, largest.owed))

    def share_among_calls(self, session: Session) -> None:
        """Notes a session that unary calls share: all their pulls together have one bound."""
        session.share_among_calls(self.shares.owed_by_pulls_max)
        self._of_calls.append(session)

    def begin_live(self) -> None:
        """Begins a change of live publishes: its chunks may reach GIVEN_AT_ONCE_MAX streams at once."""
        self.growing.begin_record()

    def live(self, live: LiveChunk) -> None:
        """See Growing.live."""
        self.growing.live(live)

    def consumed_of_key(self, key_id: bytes, queues: int) -> int:
        """See Registry.consumed_of_key."""
        return self.registry.consumed_of_key(key_id, queues)

    def live_directly(self, live: LiveChunk, queue_id: bytes) -> bool:
        """Gives a live chunk to a queue whose direct key keeps nothing. Returns whether the queue is consumed now."""
        feed = self.registry.feeds.get(queue_id)
        if feed is None or not feed.attachments:
            return False
        give_live_directly(self.registry, live, feed)
        return True

    def applied(self, effects: Effects) -> None:
        """See Applying.applied."""
        self._applying.applied(effects)

    @property
    def has_work(self) -> bool:
        return self._pump.has_work

    def turn(self) -> bool:
        """See Pump.turn."""
        return self._pump.turn()
