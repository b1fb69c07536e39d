"""Decides what becomes of messages that come back: by a nack, by an ack timeout, by the end of a lease or a session.

Most are given again at once. A nack with a delay lets them rest until the delay is over, in memory, on the leader only.
Times begin with the first tick after a message came back, so that nothing is given early.

Where a queue has a bound for deliveries, messages rest until a RETRY record (apply/retries.py) has their count, or has
marked them as done and copied them to the dead-letter key. If another slice owns that key, `letters` (letters.py) has
them until their copies are there; then a record marks them as done.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.apply.dead_letters import takes_copies
from shoal_slice_node.core.apply.effects import Retried
from shoal_slice_node.core.apply.records import Fate, Reason, Retry
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.letters import Letters
from shoal_slice_node.core.dispatch.originals import Originals
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting, Returned
from shoal_slice_node.core.dispatch.undecided import Rest, Undecided, split
from shoal_slice_node.core.limits import (
    DEAD_BYTES_PER_RECORD_MAX,
    DEAD_PER_RECORD_MAX,
    DEAD_PER_TURN,
    DELAYED_MAX,
    DELAYED_OVER_KEPT,
    DELAYED_PER_TURN,
    RETRIES_PER_RECORD_MAX,
    RETRY_LOOKS_MAX,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry
    from shoal_slice_node.core.dispatch.sessions import Session

_Delayed = tuple[int, int, Stream, Resting]
"""When it is over, a number of its own, and what rests."""


class Decision(NamedTuple):
    """Holds what a RETRY record is to do. `dead`, `copied_bytes`: the messages that it copies, and their bytes."""

    retries: list[Retry]
    dead: int
    copied_bytes: int


class Returns:
    """Keeps what came back and is not to be given yet. Memory holds at most twice the stretches that are delayed, plus
    DELAYED_OVER_KEPT, and what each binding may have out."""

    def __init__(self, state: State, registry: Registry) -> None:
        self._originals = Originals(state)
        self.letters = Letters(state, self._originals, self._wait)
        self._state = state
        self._registry = registry
        self._fresh: list[Rest] = []
        """Delayed since the last tick, which tells the time."""
        self._delayed: list[_Delayed] = []
        self._serial = count()
        self._rebuild_at = DELAYED_OVER_KEPT
        self._undecided = Undecided()
        """For the next RETRY records, which keep their counts, or mark them as done."""
        self._dying = Undecided()
        """For the next RETRY records, which copy them: that takes longer, and holds up no other."""
        self._under_way: list[tuple[Rest, Fate]] = []
        """In the last one, which may be applied or not."""

    def check_room(self, delay_ms: int) -> None:
        """Raises ResourceExhausted if no more messages can be delayed."""
        delayed = len(self._fresh) + len(self._delayed)
        if delay_ms and delayed >= DELAYED_MAX:
            raise ResourceExhausted(
                f"stretches of messages that wait for the delay of a nack: {delayed}; the limit is {DELAYED_MAX}: nack"
                " without a delay, or keep the messages until then",
                subject="delayed messages",
                limit=DELAYED_MAX,
                value=delayed + 1,
            )

    def came_back(
        self, stream: Stream, back: list[Returned], reason: Reason, session: Session, delay_ms: int = 0
    ) -> None:
        """Takes what a session was sent and has no more: it was delivered once more than before."""
        feed = stream.feed
        if feed.gone:
            return
        self._state.counters.count_back(reason, sum(one.to - one.first for one in back))
        back = [one._replace(times=one.times + 1) for one in back]
        if feed.max_deliveries:
            for one in back:
                self._wait(stream, stream.rest(one, reason, delay_ms, session.number))
            return
        self._registry.mark(stream)
        if delay_ms:
            self._fresh += [(stream, stream.rest(one, reason, delay_ms, session.number)) for one in back]
            return
        stream.give_again(back)
        feed.set_lagging(stream)

    def not_sent(self, stream: Stream, back: list[Returned]) -> None:
        """Takes what was given to a session and never sent: nothing was delivered, so it is given again at once."""
        if not stream.feed.gone:
            stream.give_again(back)
            stream.feed.set_lagging(stream)

    def loaded(self, stream: Stream) -> None:
        """Takes a stream that was just made from the tables: what was delivered as often as may be is not given."""
        most = stream.feed.max_deliveries
        for one in [one for one in stream.returned or () if one.times >= most]:
            stream.take_returned(one)
            resting = stream.rest(one, Reason.LEFT, 0, 0)
            resting.note_counted()
            self._wait(stream, resting)

    # Delays.

    def tick(self, now_ms: int) -> None:
        """Begins delays, and ends some that are over. `now_ms`: the time of a clock that only grows."""
        fresh, self._fresh = self._fresh, []
        for stream, resting in fresh:
            resting.begin_delay(now_ms + resting.delay_ms)
            heappush(self._delayed, (resting.due_ms, next(self._serial), stream, resting))
        if len(self._delayed) > self._rebuild_at:
            self._delayed = [entry for entry in self._delayed if not entry[3].over]
            heapify(self._delayed)
            self._rebuild_at = 2 * len(self._delayed) + DELAYED_OVER_KEPT
        delayed = self._delayed
        for _ in range(DELAYED_PER_TURN):
            if not delayed or delayed[0][0] > now_ms:
                break
            _, _, stream, resting = heappop(delayed)
            self._end(stream, resting)

    def _end(self, stream: Stream, resting: Resting) -> None:
        """Gives again what rested, unless that is over already."""
        if not stream.end_rest(resting):
            return
        feed = stream.feed
        if feed.gone:
            return
        stream.give_again([Returned(resting.first, resting.to, resting.times)])
        feed.set_lagging(stream)
        self._registry.wake(feed)
        self._registry.forget_if_idle(feed)

    # Records.

    def _wait(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait for a record."""
        self._line(stream, self._fate(stream, resting)).add(stream, resting)

    def _line(self, stream: Stream, fate: Fate) -> Undecided:
        return self._dying if fate == Fate.DEAD and _takes_copies(stream) else self._undecided

    def decide(self) -> Decision:
        """Returns what the next RETRY record is to do. No record may be under way. What the last one did not do, it
        takes again."""
        under_way, self._under_way = self._under_way, []
        for (stream, resting), fate in reversed(under_way):
            if not (resting.over or (fate == Fate.AGAIN and resting.counted)):
                self._line(stream, self._fate(stream, resting)).add_first(stream, resting)
        retries: list[Retry] = []
        self._decide_counts(retries)
        dead, copied_bytes = self._decide_copies(retries)
        return Decision(retries, dead, copied_bytes)

    def _decide_counts(self, retries: list[Retry]) -> None:
        """Finds messages whose counts are to be kept, and those that are done without a copy here. Those with a count
        that are given no more become letters."""
        for _ in range(RETRY_LOOKS_MAX):
            if not self._undecided or len(retries) == RETRIES_PER_RECORD_MAX:
                break
            stream, resting = self._undecided.take()
            if resting.over:
                continue
            fate = self._fate(stream, resting)
            if fate == Fate.AGAIN and resting.counted:
                self.letters.add(stream, resting)
            elif self._line(stream, fate) is self._dying:
                self._dying.add(stream, resting)  # The dead-letter key came to this slice.
            else:
                self._propose(retries, stream, resting, resting.to, fate)

    def _decide_copies(self, retries: list[Retry]) -> tuple[int, int]:
        """Finds messages that are to be copied. Returns how many, and their bytes."""
        dead = copied_bytes = 0
        opened_max = self._originals.opened_bytes + DEAD_BYTES_PER_RECORD_MAX
        for _ in range(RETRY_LOOKS_MAX):
            if not self._dying or dead >= DEAD_PER_RECORD_MAX or self._originals.opened_bytes > opened_max:
                break
            stream, resting = self._dying.take()
            if resting.over:
                continue
            fate = self._fate(stream, resting)
            if self._line(stream, fate) is self._undecided:
                self._undecided.add(stream, resting)  # The dead-letter key went to another slice.
                continue
            first, to = resting.first, min(resting.to, resting.first + min(DEAD_PER_TURN, DEAD_PER_RECORD_MAX - dead))
            end = first
            while end < to and self._originals.opened_bytes <= opened_max:
                size_bytes = self._originals.size_bytes(stream, end)
                if copied_bytes + size_bytes > DEAD_BYTES_PER_RECORD_MAX and dead + end - first:
                    break
                copied_bytes += size_bytes
                end += 1
            if end == first:
                self._dying.add_first(stream, resting)
                break
            dead += end - first
            if end < resting.to:
                resting, rest = split(stream, resting, end)
                self._dying.add(stream, rest)
            self._propose(retries, stream, resting, end, fate)
        if not (self._dying or self.letters.unsent):
            self._originals.forget()
        return dead, copied_bytes

    def _propose(self, retries: list[Retry], stream: Stream, resting: Resting, to: int, fate: Fate) -> None:
        self._under_way.append(((stream, resting), fate))
        of = (stream.feed.queue_id, stream.key_id)
        retries.append(Retry(*of, resting.first, to, resting.times, fate, resting.reason))

    def _fate(self, stream: Stream, resting: Resting) -> Fate:
        feed = stream.feed
        if resting.sent:
            return Fate.SENT
        if resting.times < feed.max_deliveries:
            return Fate.AGAIN
        dead_letter = feed.dead_letter
        assert isinstance(dead_letter, bytes)
        here = not _takes_copies(stream) or self._state.owns(dead_letter)
        return Fate.DEAD if here else Fate.AGAIN  # Its count first; then a letter.

    def retried(self, stream: Stream, retried: Retried) -> bool:
        """Takes in what a RETRY record did with messages that rest. Returns whether some of them are done now."""
        if retried.done:
            return bool(self._cut(stream, retried.first, retried.to, done=True))
        for resting in list((stream.resting or {}).values()):
            if resting.counted or not retried.first <= resting.first <= resting.to <= retried.to:
                continue
            resting.note_counted()
            if resting.times >= stream.feed.max_deliveries:
                self._wait(stream, resting)
            elif resting.delay_ms:
                self._fresh.append((stream, resting))
            else:
                self._end(stream, resting)
        return False

    def acked_by_change(self, stream: Stream, first: int, to: int) -> None:
        """Notes that first <= o < to are done: none of them rests any more."""
        if stream.resting:
            self._cut(stream, first, to, done=False)

    def _cut(self, stream: Stream, first: int, to: int, done: bool) -> int:
        """Ends the rest of first <= o < to; other parts of their stretches rest on. `done`: the stream does not know
        yet that they are done. Returns how many stretches had some of them."""
        cut = [one for one in (stream.resting or {}).values() if one.first < to and first < one.to]
        for resting in cut:
            stream.end_rest(resting)
            if done:
                stream.done_at_once(max(first, resting.first), min(to, resting.to))
            for low, high in ((resting.first, min(resting.to, first)), (max(resting.first, to), resting.to)):
                if low < high:
                    part = resting.part(low, high)
                    stream.rest_on(part)
                    self._go_on(stream, part)
        return len(cut)

    def _go_on(self, stream: Stream, resting: Resting) -> None:
        """Lets a part of what rested wait for what the whole waited for."""
        feed = stream.feed
        if resting.due_ms:
            heappush(self._delayed, (resting.due_ms, next(self._serial), stream, resting))
        elif feed.max_deliveries and (not resting.counted or resting.times >= feed.max_deliveries):
            self._wait(stream, resting)
        else:
            self._fresh.append((stream, resting))


def _takes_copies(stream: Stream) -> bool:
    """Returns whether the stream's queue has copies made of messages that are given no more."""
    dead_letter = stream.feed.dead_letter
    assert isinstance(dead_letter, bytes)
    return takes_copies(dead_letter, stream.key)
