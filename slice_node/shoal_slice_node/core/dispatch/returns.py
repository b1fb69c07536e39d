"""Decides what becomes of messages that come back: by a nack, by an ack timeout, by the end of a lease or a session.

Most are given again at once. A nack with a delay lets them rest until the delay is over, in memory, on the leader only.
Times begin with the first tick after a message came back, so that nothing is given early.

Where a queue has a bound for deliveries, messages rest until a RETRY record (apply/retries.py) has their count, or has
marked them as done and copied them to the dead-letter key. If another slice owns that key, `letters` (letters.py) has
them until their copies are there; then a record marks them as done.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.core.apply.dead_letters import takes_copies
from shoal_slice_node.core.apply.effects import Retried
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.records import Fate, Reason, Retry
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.letters import Letters
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting, Returned
from shoal_slice_node.core.limits import (
    DEAD_BYTES_PER_RECORD_MAX,
    DEAD_COST,
    DEAD_PER_RECORD_MAX,
    DONE_RANGES_PER_APPLIED,
    RESTING_ENDED_PER_TURN,
    RESTING_MAX,
    RESTING_OVER_KEPT,
    RETRIES_COST_PER_RECORD,
    RETRIES_PER_RECORD_MAX,
    RETRY_LOOKS_MAX,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry

_Rest = tuple[Stream, Resting]
_Delayed = tuple[int, int, Stream, Resting]
"""When it is over, a number of its own, and what rests."""


class Returns:
    """Keeps what came back and is not to be given yet. Memory holds at most twice the stretches that are delayed, plus
    RESTING_OVER_KEPT, and what each binding may have out."""

    def __init__(self, state: State, registry: Registry) -> None:
        self.letters = Letters(state, self._retry)
        self._state = state
        self._registry = registry
        self._fresh: list[_Rest] = []
        """Delayed since the last tick, which tells the time."""
        self._delayed: list[_Delayed] = []
        self._serial = count()
        self._rebuild_at = RESTING_OVER_KEPT
        self._undecided: OrderedDict[Stream, list[Resting]] = OrderedDict()
        """For the next RETRY records, by binding: a record reads and writes the counts of each once."""
        self._under_way: list[tuple[Stream, Resting, Retry]] = []
        """In the last one, which may be applied or not."""

    def check_room(self, delay_ms: int) -> None:
        """Raises ResourceExhausted if no more messages can be delayed."""
        delayed = len(self._fresh) + len(self._delayed)
        if delay_ms and delayed >= RESTING_MAX:
            raise ResourceExhausted(
                f"stretches of messages that wait for the delay of a nack: {delayed}; the limit is {RESTING_MAX}: nack"
                " without a delay, or keep the messages until then",
                subject="delayed messages",
                limit=RESTING_MAX,
                value=delayed + 1,
            )

    def check_rests(self) -> None:
        """Raises ResourceExhausted if no more messages can rest."""
        shares = self._registry.shares
        rests, rests_max = shares.rests.stretches, shares.rests_max
        if rests >= rests_max:
            raise ResourceExhausted(
                f"stretches of messages that came back and are not given again yet: {rests}; the limit is {rests_max}:"
                " keep the messages, and nack them later",
                subject="resting messages",
                limit=rests_max,
                value=rests + 1,
            )

    def came_back(self, stream: Stream, back: list[Returned], reason: Reason, delay_ms: int = 0) -> None:
        """Takes what a session was sent and has no more: it was delivered once more than before."""
        feed = stream.feed
        if feed.gone:
            return
        back = [one._replace(times=one.times + 1) for one in back]
        self._state.counters.count_back(reason, sum(one.to - one.first for one in back))
        if feed.max_deliveries:
            for one in back:
                self._retry(stream, stream.rest(one, reason, delay_ms))
            return
        self._registry.mark(stream)
        if delay_ms:
            self._fresh += [(stream, stream.rest(one, reason, delay_ms)) for one in back]
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
            resting = stream.rest(one, Reason.LEFT, 0)
            resting.note_counted()
            self._retry(stream, resting)

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
            self._rebuild_at = 2 * len(self._delayed) + RESTING_OVER_KEPT
        delayed = self._delayed
        for _ in range(RESTING_ENDED_PER_TURN):
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

    def decide(self) -> int:
        """Decides what the next RETRY record is to do. Returns its cost, in operations; 0: there is nothing to do. No
        record may be under way. What the last one did not do, it takes again."""
        under_way, self._under_way = self._under_way, []
        for stream, resting, retry in reversed(under_way):
            if not (resting.over or (retry.fate == Fate.AGAIN and resting.counted)):
                self._undecided.setdefault(stream, []).insert(0, resting)
        record = _Record()
        while self._undecided and not record.full:
            stream, waiting = self._undecided.popitem(last=False)
            ranges = sum(len(some) for some in (stream.done, stream.resting, stream.returned) if some is not None)
            if not record.begin(1 + ranges // DONE_RANGES_PER_APPLIED):
                self._undecided[stream] = waiting
                self._undecided.move_to_end(stream, last=False)
                break
            del waiting[: self._decide_some(stream, waiting, record)]
            if waiting:
                self._undecided[stream] = waiting  # Behind the others: bindings take turns.
        return record.cost if self._under_way else 0

    def _decide_some(self, stream: Stream, waiting: list[Resting], record: _Record) -> int:
        """Decides about stretches of one binding, until the record is full. Returns how many."""
        of = stream.feed.queue_id, stream.key_id
        found = self._state.key_by_id(stream.key_id)
        rows = None if found is None else LogRows(self._state.tables.log, found[1])
        for number, resting in enumerate(waiting):
            if record.full:
                return number
            record.looks += 1
            if resting.over or stream.feed.gone:
                continue
            fate = self._fate(stream, resting)
            if fate == Fate.AGAIN and resting.counted:
                self.letters.add(stream, resting)
                continue
            to = resting.to
            if fate == Fate.DEAD:
                to = min(to, resting.first + DEAD_PER_RECORD_MAX - record.dead)
                to, record.left_bytes = self._fitting(
                    rows, resting.first, to, record.left_bytes, first_of_record=not record.dead
                )
                if to == resting.first:
                    record.left_bytes = 0
                    return number
                record.dead += to - resting.first
            retry = Retry(*of, resting.first, to, resting.times, fate, resting.reason)
            self._under_way.append((stream, resting, retry))
            record.retries += 1
        return len(waiting)

    def decided(self) -> list[Retry]:
        """Returns what was decided last, as far as it still rests."""
        return [retry for stream, one, retry in self._under_way if not (one.over or stream.feed.gone)]

    def _fate(self, stream: Stream, resting: Resting) -> Fate:
        feed = stream.feed
        if resting.sent:
            return Fate.SENT
        if resting.times < feed.max_deliveries:
            return Fate.AGAIN
        dead_letter = feed.dead_letter
        assert isinstance(dead_letter, bytes)
        here = not takes_copies(dead_letter, stream.key) or self._state.owns(dead_letter)
        return Fate.DEAD if here else Fate.AGAIN  # Its count first; then a letter.

    @staticmethod
    def _fitting(rows: LogRows | None, first: int, to: int, left_bytes: int, first_of_record: bool) -> tuple[int, int]:
        """Returns how far a record with so many bytes left may copy, and the bytes that are left then."""
        offset = first
        while rows is not None and offset < to:
            stored = rows.at(offset)
            if stored is None:
                return to, left_bytes
            left_bytes -= len(stored.chunk) // stored.header.messages
            if left_bytes < 0 and not first_of_record:
                return offset, left_bytes
            first_of_record = False
            offset += 1
        return to, left_bytes

    def _retry(self, stream: Stream, resting: Resting) -> None:
        """Lets the next records decide."""
        self._undecided.setdefault(stream, []).append(resting)

    def retried(self, stream: Stream, retried: Retried) -> bool:
        """Takes in what a RETRY record did with messages that rest. Returns whether some of them are done now."""
        if retried.done:
            return bool(self._cut(stream, retried.first, retried.to, done=True))
        for resting in stream.resting.within(retried.first, retried.to) if stream.resting else ():
            if resting.counted or not retried.first <= resting.first <= resting.to <= retried.to:
                continue
            resting.note_counted()
            if resting.times >= stream.feed.max_deliveries:
                self._retry(stream, resting)
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
        cut = stream.resting.within(first, to) if stream.resting else []
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
            self._retry(stream, resting)
        else:
            self._fresh.append((stream, resting))


class _Record:
    """Keeps how much of the next RETRY record is used up. `left_bytes`: of the chunks that dead messages are in."""

    __slots__ = ("_bindings_cost", "dead", "left_bytes", "looks", "retries")

    def __init__(self) -> None:
        self._bindings_cost = self.retries = self.dead = self.looks = 0
        self.left_bytes = DEAD_BYTES_PER_RECORD_MAX

    @property
    def cost(self) -> int:
        """Returns what applying it takes, in operations."""
        return self._bindings_cost + self.retries + DEAD_COST * self.dead

    @property
    def full(self) -> bool:
        most = self.retries >= RETRIES_PER_RECORD_MAX or self.dead >= DEAD_PER_RECORD_MAX
        return most or self.left_bytes <= 0 or self.looks >= RETRY_LOOKS_MAX

    def begin(self, binding_cost: int) -> bool:
        """Returns whether there is room for a binding. There is for the first one."""
        if self.retries and self.cost + binding_cost > RETRIES_COST_PER_RECORD:
            return False
        self._bindings_cost += binding_cost
        return True
