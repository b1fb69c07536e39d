"""Takes the work of dispatch in turns: each kind of work that waits gets one bounded step after the other.

Belongs here: the list of kinds, and their order. Not here: what most steps do (growing, attaching).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from functools import partial
from typing import NamedTuple

from shoal_slice_node.core.dispatch.acks_in_flight import AcksInFlight
from shoal_slice_node.core.dispatch.attaching import Attaching
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.filling import Budget, Pick, fill
from shoal_slice_node.core.dispatch.growing import Growing
from shoal_slice_node.core.dispatch.left_out import LeftOut
from shoal_slice_node.core.dispatch.pausing import resume
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import (
    ATTACHED_PER_STEP,
    FREED_STREAMS_MAX,
    LAGGING_AT_ONCE_MAX,
    LOOKS_PER_LARGE_NEXT,
    PUMP_TURN_BINDINGS,
    PUMP_TURN_BYTES,
    PUMP_TURN_HANDLES,
    PUMP_TURN_ROWS,
    RELIEF_LOOKS_PER_STEP,
)


class _Kind(NamedTuple):
    """Describes a kind of work: what waits for it, and a bounded step of it."""

    waiting: Sized
    step: Callable[[], object]


class Pump:
    """Gives turns to the kinds of work."""

    def __init__(self, registry: Registry, growing: Growing, attaching: Attaching, acks: AcksInFlight) -> None:
        self._registry = registry
        self._left_out: OrderedDict[Feed, LeftOut] = OrderedDict()
        self._kinds = (
            _Kind(registry.ready, self._fill_turn),
            _Kind(growing.spreads, partial(growing.turn, PUMP_TURN_HANDLES)),
            _Kind(attaching.returning.walks, partial(attaching.returning.turns, PUMP_TURN_HANDLES)),
            _Kind(registry.releases.waiting, partial(registry.releases.turn, PUMP_TURN_HANDLES)),
            _Kind(registry.timeouts.ending, partial(registry.timeouts.turn, PUMP_TURN_HANDLES)),
            _Kind(acks.gaps_left, partial(acks.gaps_turn, PUMP_TURN_HANDLES)),
            _Kind(registry.roomy, self._room_turn),
            _Kind(registry.shares.line, self._line_turn),
            _Kind(registry.shares.line.freed, self._freed_turn),
            _Kind(self._left_out, self._left_out_turn),
            _Kind(attaching.loading, partial(attaching.load_turn, PUMP_TURN_BINDINGS)),
            _Kind(attaching.closing, partial(attaching.close_turn, PUMP_TURN_BINDINGS)),
            _Kind(attaching.owing, partial(attaching.owing_turn, PUMP_TURN_BINDINGS)),
            _Kind(attaching.dissolving, partial(attaching.dissolve_turn, ATTACHED_PER_STEP)),
            _Kind(attaching.arriving, partial(attaching.arrive_turn, ATTACHED_PER_STEP)),
            _Kind(registry.forgetting, self._forget_turn),
            _Kind(attaching.handles_over, attaching.handles_over.turn),
            _Kind(registry.short, self._short_turn),
            _Kind(attaching.relief.looks, partial(attaching.relief.turn, RELIEF_LOOKS_PER_STEP)),
        )
        self._next_kind = 0

    @property
    def has_work(self) -> bool:
        return any(waiting for waiting, _ in self._kinds)

    def turn(self) -> bool:
        """Takes one bounded step of the next kind of work in turn. Returns False if there is none. More may be done at
        once from now on."""
        kinds = self._kinds
        found = False
        for step in range(len(kinds)):
            index = (self._next_kind + step) % len(kinds)
            if kinds[index].waiting:
                self._next_kind = index + 1
                kinds[index].step()
                found = True
                break
        self._registry.at_once.renew()
        return found

    def _fill_turn(self) -> None:
        """Reads logs for the feed that waited longest."""
        feed, _ = self._registry.ready.popitem(last=False)
        somebody_lined_up, new = feed.has_line, feed.take_new_lagging()
        self._fill(feed, Budget(PUMP_TURN_ROWS, PUMP_TURN_BYTES))
        if feed.has_line or not (feed.lagging and self._registry.shares.line.is_crowded):
            return
        left = self._left_out.setdefault(feed, LeftOut(feed, self._registry.shares.line))
        if somebody_lined_up:
            left.note_all()
        else:
            left.note_newest(new)

    def _left_out_turn(self) -> None:
        """Looks at a few keys of a feed that were left out of a look, while those that consume it wait for room for
        something else, or asks a few of these."""
        feed, left = self._left_out.popitem(last=False)
        budget = Budget(PUMP_TURN_ROWS, PUMP_TURN_BYTES)
        for _ in range(FREED_STREAMS_MAX):
            if feed.gone or budget.spent or not left:
                break
            if not left.finds_consumer():
                continue
            look, given, passed_over = left.take(), budget.given, feed.passed_over
            if not look.stream.lagging:
                continue
            if not self._fill_stream(look.stream, budget, left.pick) and budget.given == given:
                feed.pass_over(passed_over)  # A look in vain undoes no count of such looks.
            left.looked_at(look, budget.given > given)
        if left and not feed.gone:
            self._left_out[feed] = left

    def _fill(self, feed: Feed, budget: Budget) -> None:
        """Reads logs for a feed, as far as there is room and budget."""
        if feed.gone:
            return
        registry = self._registry
        passed_over, line = feed.passed_over, registry.shares.line
        for stream in _in_turn(feed):
            if budget.spent or not feed.find_room():
                break
            if line.waits_for_large_turn(stream):
                feed.clear_lagging(stream)
                feed.lag_on(stream)
                budget.looks -= LOOKS_PER_LARGE_NEXT
                passed_over += 1
                continue
            before = budget.given
            caught_up = self._fill_stream(stream, budget, feed.pick)
            passed_over = 0 if caught_up or budget.given > before else passed_over + 1
        if budget.was_short or feed.is_short:
            registry.short.note(feed)
        if budget.spent:
            if passed_over < len(feed.lagging):
                registry.wake(feed)
            feed.pass_over(passed_over)  # Also if it is all of them: another look may have been asked for.

    def _fill_stream(self, stream: Stream, budget: Budget, pick: Pick) -> bool:
        """Reads the log for a stream that lags. Returns whether it has caught up; else it is behind the others then:
        keys take turns."""
        registry, feed = self._registry, stream.feed
        feed.clear_lagging(stream)
        give, lease_of, give_run = registry.give, registry.leases.of, registry.give_run
        if fill(registry, stream, pick, give, budget, lease_of, give_run):
            return True
        feed.lag_on(stream)
        return False

    def _room_turn(self) -> None:
        session, _ = self._registry.roomy.popitem(last=False)
        resume(self._registry, session, PUMP_TURN_BINDINGS)
        self._registry.serve_turned_away(session, PUMP_TURN_BINDINGS)

    def _line_turn(self) -> None:
        """Gives its turn to the session that is next in line for room in the share of deliveries: reads logs for the
        feeds that it turned away, until the session or the share is full. A feed with a large chunk waits for a turn in
        the line for these, if there is little room."""
        registry = self._registry
        line = registry.shares.line
        budget = Budget(PUMP_TURN_ROWS, min(PUMP_TURN_BYTES, line.turn_bytes))
        session, large = line.begin_turn()
        away = session.turned_away
        waiting = away.of(large)
        for _ in range(PUMP_TURN_BINDINGS):
            if budget.spent or not (waiting and session.has_room):
                break
            feed = away.next(large)
            attachment = feed.attachments.get(session.number)
            if attachment is not None and attachment.window_open:
                feed.line_up_first(attachment)
                given, asked = budget.given, feed in registry.ready
                if large:
                    self._fill_large(session, feed, budget)
                self._fill(feed, budget)
                if budget.given > given:
                    if large and feed.lagging and attachment.window_open:
                        away.expect_large(feed)  # Else it has to wait behind all that is small.
                elif feed in registry.ready and not asked:  # If it was: a look for another session, which must come.
                    del registry.ready[feed]
                    away.expect_large(feed)  # All looks were in vain, and there are more: small turns would never end.
                elif large and away.knows_large(feed.queue_id) and attachment.window_open:
                    away.expect_large(feed)
            away.forget_large_chunks(feed)
        line.end_turn()
        registry.has_room_again(session)

    def _fill_large(self, session: Session, feed: Feed, budget: Budget) -> None:
        """Reads logs for the streams of a feed that are known to have a large chunk next. They count as passed over,
        and looks at others that get nothing could end each turn before it comes to them."""
        away = session.turned_away
        for _ in range(PUMP_TURN_BINDINGS):
            if budget.spent or not (away.knows_large(feed.queue_id) and feed.find_room()):
                break
            stream = feed.streams.get(away.take_large(feed.queue_id))
            if stream is None or not stream.lagging:
                continue
            given, passed_over = budget.given, feed.passed_over
            if not self._fill_stream(stream, budget, feed.pick) and budget.given == given:
                feed.pass_over(passed_over)  # A look in vain undoes no count of such looks.

    def _freed_turn(self) -> None:
        """Looks at a few keys of a queue of a session that waits for room, whose connection has read something since:
        what is next may come out of turn now. If it does, the next session of the connection is looked at."""
        line = self._registry.shares.line
        found = line.next_freed()
        if found is None:
            return
        session, feed = found
        attachment = feed.attachments.get(session.number)
        budget = Budget(PUMP_TURN_ROWS, min(PUMP_TURN_BYTES, line.turn_bytes))
        for _ in range(min(FREED_STREAMS_MAX, len(feed.lagging))):
            if budget.given or attachment is None or not attachment.window_open:
                break
            feed.line_up_first(attachment)
            self._fill(feed, budget)  # It ends where the attachment has no room for what is next of a key.
        if budget.given:
            line.gave_freed(session)

    def _short_turn(self) -> None:
        short = self._registry.short
        for _ in range(PUMP_TURN_HANDLES):
            if not short:
                return
            self._registry.wake(short.take())

    def _forget_turn(self) -> None:
        forgetting = self._registry.forgetting
        left = PUMP_TURN_HANDLES
        while left > 0 and forgetting:
            streams = forgetting[0]
            if not streams:
                forgetting.popleft()
                left -= 1
                continue
            stream = streams.popitem()[1]  # Freed one by one: a large feed at once would take long.
            left -= 1 + stream.stretches
            self._registry.forget_stream(stream)


def _in_turn(feed: Feed) -> Iterator[Stream]:
    """Yields each stream of a feed that lags now once, in their order, while the caller takes each out, and may put it
    behind the others. Streams that do not lag any more when their turn comes are left out."""
    left = len(feed.lagging)
    while left > 0:
        streams = feed.first_lagging(min(left, LAGGING_AT_ONCE_MAX))
        if not streams:
            return
        left -= len(streams)
        for stream in streams:
            if stream.lagging:
                yield stream
