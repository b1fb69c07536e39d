"""Keeps what came back until it is given again: by a nack, by an ack timeout, by the end of a lease or a session.

Most are given again at once. A nack with a delay lets them rest until the delay is over, in memory, on the leader only.
Times begin with the first tick after a message came back, so that nothing is given early.

Where a queue has a bound for deliveries, messages rest until a RETRY record (apply/retries.py) has their count, or has
marked them as done and copied them to the dead-letter key: `deciding` (deciding.py) says which. If another slice owns
that key, `letters` (letters.py) has them until their copies are there; then a record marks them as done.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from shoal_contract.errors import ResourceExhausted
from shoal_contract.names import show
from shoal_slice_node.core.apply.effects import Retried
from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.deciding import Deciding
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import GAP, Resting, Returned
from shoal_slice_node.core.limits import (
    RESTING_ENDED_PER_TURN,
    RESTING_LOOKED_AT_PER_TURN,
    RESTING_OVER_KEPT,
    RESTS_PER_QUEUE_FLOOR,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.registry import Registry
    from shoal_slice_node.core.dispatch.sessions import Session

_Delayed = tuple[int, int, Stream, Resting]
"""When it is over, a number of its own, and what rests."""


class Returns:
    """Keeps what came back and is not to be given yet. Memory holds at most twice the stretches that are delayed, plus
    RESTING_OVER_KEPT, and what each binding may have out."""

    def __init__(self, state: State, registry: Registry) -> None:
        self.deciding = Deciding(state, self._given_up, lambda: registry.expiry_clock_ms)
        self.letters = self.deciding.letters
        self._state = state
        self._registry = registry
        self._fresh: list[tuple[Stream, Resting]] = []
        """Delayed since the last tick, which tells the time."""
        self._delayed: list[_Delayed] = []
        """A heap. From time to time it becomes `_old`."""
        self._old: list[_Delayed] = []
        """A heap that shrinks from its end: what still rests moves to `_delayed`, the other is left out."""
        self._serial = count()
        self._rebuild_at = RESTING_OVER_KEPT

    def check_rests(self, feed: Feed, session: Session, stretches: int) -> None:
        """Raises ResourceExhausted if no more stretches of messages can rest: on this slice, of this queue, or of this
        session. While less than half of what may rest does, any queue and any session may have all of it; then it is
        divided among those that have some. A queue may always have RESTS_PER_QUEUE_FLOOR."""
        shares = self._registry.shares
        rests, rests_max = shares.rests, shares.rests_max
        after = rests.stretches + stretches
        if 2 * after <= rests_max or feed.resting + stretches <= RESTS_PER_QUEUE_FLOOR:
            return
        _check("resting messages", "on this slice", after, rests_max)
        fair = max(RESTS_PER_QUEUE_FLOOR, rests_max // (2 * max(1, rests.queues + (not feed.resting))))
        queue = f"of queue {show(feed.name)}"
        _check(f"resting messages {queue}", queue, feed.resting + stretches, fair)
        had = rests.of(session.number)
        _check("resting messages of the session", "of this session", had + stretches, rests_max // (1 + rests.sessions))

    def came_back(
        self,
        stream: Stream,
        back: list[Returned],
        reason: Reason,
        session: Session,
        delay_ms: int = 0,
        counts: bool = True,
    ) -> None:
        """Takes what a session was sent and has no more: it was delivered once more than before. Without `counts`
        that may be so, and a queue that counts deliveries does not count it. The caller must wake the feed."""
        feed = stream.feed
        if feed.gone:
            return
        told = [one for one in back if one.times == GAP]
        if told:
            back = [one for one in back if one.times != GAP]
            for one in told:
                stream.done_at_once(one.first, one.to)
            self._registry.note_done(stream)
        if not back:
            return
        self._state.counters.count_back(reason, sum(one.to - one.first for one in back))
        if feed.max_deliveries and not counts:
            stream.give_again(back)
            _lags_anew(stream)
            return
        back = [one._replace(times=one.times + 1) for one in back]
        if feed.max_deliveries:
            for one in back:
                self.deciding.wait(stream, stream.rest(one, reason, delay_ms, session.number))
            return
        self._registry.marks.mark(stream)
        if delay_ms:
            self._fresh += [(stream, stream.rest(one, reason, delay_ms, session.number)) for one in back]
            return
        stream.give_again(back)
        _lags_anew(stream)

    def not_sent(self, stream: Stream, back: list[Returned]) -> None:
        """Takes what was given to a session and never sent, or what no program was given: nothing was delivered, so it
        is given again at once. The caller must wake the feed."""
        if not stream.feed.gone:
            stream.give_again([one._replace(times=0) if one.times == GAP else one for one in back])
            _lags_anew(stream)

    def loaded(self, stream: Stream) -> None:
        """Takes a stream that was just made from the tables: what was delivered as often as may be is not given."""
        most = stream.feed.max_deliveries
        for one in [one for one in stream.returned or () if one.times >= most]:
            stream.take_returned(one)
            resting = stream.rest(one, Reason.LEFT, 0, 0)
            resting.note_counted()
            self.deciding.wait(stream, resting)

    # Delays.

    def tick(self, now_ms: int) -> None:
        """Begins delays, and ends some that are over. `now_ms`: the time of a clock that only grows."""
        fresh, self._fresh = self._fresh, []
        for stream, resting in fresh:
            resting.begin_delay(now_ms + resting.delay_ms)
            heappush(self._delayed, (resting.due_ms, next(self._serial), stream, resting))
        self._leave_out_over()
        left = RESTING_ENDED_PER_TURN
        for heap in (self._old, self._delayed):
            while left > 0 and heap and heap[0][0] <= now_ms:
                left -= 1
                _, _, stream, resting = heappop(heap)
                self._end(stream, resting)

    def end_delay(self, stream: Stream, resting: Resting) -> None:
        """Gives again what rests only until its delay is over: as a new leader does, which knows of no delays."""
        bound = stream.feed.max_deliveries
        if not bound or (resting.counted and resting.times < bound):
            self._end(stream, resting)

    def _leave_out_over(self) -> None:
        """Leaves out some of what rests no more, in bounded steps."""
        if not self._old and len(self._delayed) > self._rebuild_at:
            self._old, self._delayed = self._delayed, []
        for entry in reversed(self._old[-RESTING_LOOKED_AT_PER_TURN:]):
            if not entry[3].over:
                heappush(self._delayed, entry)
        if self._old:
            del self._old[-RESTING_LOOKED_AT_PER_TURN:]
            if not self._old:
                self._rebuild_at = 2 * len(self._delayed) + RESTING_OVER_KEPT

    def _end(self, stream: Stream, resting: Resting) -> None:
        """Gives again what rested, unless that is over already."""
        if not stream.end_rest(resting):
            return
        feed = stream.feed
        if feed.gone:
            return
        stream.give_again([Returned(resting.first, resting.to, resting.times)])
        _lags_anew(stream)
        after_release(self._registry, feed)

    # Records.

    def retried(self, stream: Stream, retried: Retried) -> bool:
        """Takes in what a RETRY record did with messages that rest. Returns whether some of them are done now."""
        if retried.done:
            return bool(self._cut(stream, retried.first, retried.to, done=True))
        for resting in stream.resting.within(retried.first, retried.to) if stream.resting else ():
            if resting.counted or not retried.first <= resting.first <= resting.to <= retried.to:
                continue
            resting.note_counted()
            if resting.times >= stream.feed.max_deliveries:
                continue  # `deciding` has it, and finds the count.
            if resting.delay_ms:
                self._fresh.append((stream, resting))
            else:
                self._end(stream, resting)
        return False

    def end_rests(self, stream: Stream, first: int, to: int) -> None:
        """Notes that first <= o < to are done: none of them rests any more."""
        taken = stream.take_rests(first, to)
        for resting in taken[:1] + taken[1:][-1:]:
            self._rest_on_beside(stream, resting, first, to)
        self._registry.releases.add(stream, [], taken)

    def _given_up(self, stream: Stream, resting: Resting, low: int) -> None:
        """Ends the rest of what the key gave up, below `low`. It is passed over with what is to be given again, so
        that a consumer is told of the gap; unless its copy is where it belongs."""
        feed, back = stream.feed, Returned(resting.first, low, resting.times)
        self._cut(stream, back.first, back.to, done=resting.sent)
        if resting.sent:
            self._registry.note_done(stream)
        else:
            stream.give_again([back])
            _lags_anew(stream)
        after_release(self._registry, feed)

    def _cut(self, stream: Stream, first: int, to: int, done: bool) -> int:
        """Ends the rest of first <= o < to; other parts of their stretches rest on. `done`: the stream does not know
        yet that they are done. Returns how many stretches had some of them."""
        cut = stream.resting.within(first, to) if stream.resting else []
        for resting in cut:
            stream.end_rest(resting)
            if done:
                stream.done_at_once(max(first, resting.first), min(to, resting.to))
            self._rest_on_beside(stream, resting, first, to)
        return len(cut)

    def _rest_on_beside(self, stream: Stream, resting: Resting, first: int, to: int) -> None:
        """Lets what rested rest on, but for first <= o < to."""
        for low, high in ((resting.first, min(resting.to, first)), (max(resting.first, to), resting.to)):
            if low < high:
                part = resting.part(low, high)
                stream.rest_on(part)
                self._go_on(stream, part)

    def _go_on(self, stream: Stream, resting: Resting) -> None:
        """Lets a part of what rested wait for what the whole waited for."""
        feed = stream.feed
        if resting.due_ms:
            heappush(self._delayed, (resting.due_ms, next(self._serial), stream, resting))
        elif feed.max_deliveries and (not resting.counted or resting.times >= feed.max_deliveries):
            self.deciding.wait(stream, resting)
        else:
            self._fresh.append((stream, resting))


def _check(subject: str, whose: str, after: int, most: int) -> None:
    """Raises ResourceExhausted if so many stretches would rest, and fewer may."""
    if after > most:
        raise ResourceExhausted(
            f"stretches of messages {whose} that came back and are not given again yet would be {after}; the limit is"
            f" {most}: keep the messages, and nack them later",
            subject=subject,
            limit=most,
            value=after,
        )


def _lags_anew(stream: Stream) -> None:
    """Notes that a stream has something else next, as it came back. It stands behind the others that lag, where those
    with something new are looked at."""
    stream.feed.clear_lagging(stream)
    stream.feed.set_lagging(stream)
