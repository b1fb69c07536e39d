"""Decides what RETRY records do: which counts they keep, which messages they mark as done, which they copy.

Belongs here: what waits for a record, and how much one does. Not here: what rests for other reasons (returns), what
becomes of letters (letters).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import attrgetter

from shoal_slice_node.core.apply.dead_letters import takes_copies
from shoal_slice_node.core.apply.records import Fate, Retry
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.letters import Letters
from shoal_slice_node.core.dispatch.originals import Originals
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting
from shoal_slice_node.core.dispatch.undecided import Undecided, split
from shoal_slice_node.core.limits import (
    DEAD_BYTES_PER_RECORD_MAX,
    DEAD_COST,
    DEAD_PER_RECORD_MAX,
    DEAD_PER_TURN,
    DONE_RANGES_PER_COST,
    FAIR_BYTES_PER_OPERATION,
    RETRIES_COST_PER_RECORD,
    RETRIES_PER_RECORD_MAX,
    RETRIES_PER_TURN,
    RETRY_LOOKS_MAX,
)

_BINDING = attrgetter("queue_id", "key_id")


GiveUp = Callable[[Stream, Resting, int], None]
"""Takes a stretch of which the key does not keep what is below an offset any more."""


class _Next(Enum):
    """Says what is next for messages that came back."""

    REST = 0
    """Nothing: the tables have their count, and a delay is not over."""
    COUNT = 1
    """A record keeps their count."""
    END = 2
    """A record marks them as done; there are no copies to make."""
    COPY = 3
    """A record marks them as done and makes their copies."""
    SEND = 4
    """Letters bring their copies to the slice that owns the dead-letter key."""
    END_SENT = 5
    """A record marks them as done: their copies are there."""


_FATES = {_Next.COUNT: Fate.AGAIN, _Next.END: Fate.DEAD, _Next.COPY: Fate.DEAD, _Next.END_SENT: Fate.SENT}
"""What a record says of each; a letter needs none."""


class Deciding:
    """Keeps what waits for RETRY records, and decides about it. What the key gave up meanwhile needs no record, and
    a record might not find it: the cursor in the tables may have passed it."""

    def __init__(self, state: State, give_up: GiveUp, expiry_clock_ms: Callable[[], int]) -> None:
        self._state = state
        self._give_up = give_up
        self._originals = Originals(state)
        self.letters = Letters(state, self._originals, self.wait, expiry_clock_ms)
        self._counting = Undecided()
        """Counts are to be kept of these, or they are done and not copied here."""
        self._dying = Undecided()
        """To be copied: that takes longer, and holds up no count."""
        self._under_way: list[tuple[Stream, Resting, Retry]] = []
        """In the last record, which may be applied or not."""

    def wait(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait for a record."""
        self._line(stream, resting).add(stream, resting)

    def decide(self) -> int:
        """Decides what the next RETRY record is to do. Returns its cost, in operations; 0: there is nothing to do. No
        record may be under way. What the last one did not do, it takes again."""
        under_way, self._under_way = self._under_way, []
        for stream, resting, _ in reversed(under_way):
            if not (resting.over or self._next(stream, resting) is _Next.REST):
                self._line(stream, resting).add_first(stream, resting)
        cost = self._decide_counts() + self._decide_copies()
        return cost if self._under_way else 0

    def decided(self) -> list[Retry]:
        """Returns what was decided last, as far as it still rests: by binding, as a record reads and writes each once
        if its stretches come one after the other."""
        retries = [retry for stream, one, retry in self._under_way if not (one.over or stream.feed.gone)]
        return sorted(retries, key=_BINDING)

    def _decide_counts(self) -> int:
        """Decides about what is not to be copied. What is given no more and has its count becomes letters. Returns the
        cost."""
        record = _RecordRoom()
        while self._counting and record.looks < RETRY_LOOKS_MAX and record.retries < RETRIES_PER_RECORD_MAX:
            waiting = self._counting.take()
            has_room = record.begin(waiting.stream)
            most = min(RETRIES_PER_TURN, RETRIES_PER_RECORD_MAX - record.retries, len(waiting.stretches))
            for _ in range(most if has_room else 0):
                self._decide_count(record, waiting.stream, waiting.stretches.popleft())
            self._counting.put_back(waiting, first=not has_room)
            if not has_room:
                break
        return record.cost

    def _decide_count(self, record: _RecordRoom, stream: Stream, resting: Resting) -> None:
        record.looks += 1
        if resting.over or stream.feed.gone or self._is_given_up(stream, resting):
            return
        step = self._next(stream, resting)
        if step is _Next.REST:
            return  # It is a part of what was in the record that is applied now.
        if step is _Next.SEND:
            self.letters.add(stream, resting)
        elif step is _Next.COPY:
            self._dying.add(stream, resting)  # The dead-letter key came to this slice.
        else:
            record.retries += 1
            self._propose(stream, resting, _FATES[step])

    def _decide_copies(self) -> int:
        """Decides about what is to be copied. Returns the cost."""
        record = _RecordRoom()
        opened_max = self._originals.opened_bytes + DEAD_BYTES_PER_RECORD_MAX
        while self._dying and record.looks < RETRY_LOOKS_MAX and record.dead < DEAD_PER_RECORD_MAX:
            waiting = self._dying.take()
            has_room = record.begin(waiting.stream)
            end = record.dead + min(DEAD_PER_TURN, DEAD_PER_RECORD_MAX - record.dead)
            while has_room and waiting.stretches and record.dead < end and record.looks < RETRY_LOOKS_MAX:
                rest = self._decide_copy(record, waiting.stream, waiting.stretches.popleft(), end, opened_max)
                if rest is not None:
                    waiting.stretches.appendleft(rest)
                    has_room = record.dead == end
            self._dying.put_back(waiting, first=not has_room)
            if not has_room:
                break
        if not (self._dying or self.letters.unsent):
            self._originals.forget()
        return record.cost

    def _decide_copy(
        self, record: _RecordRoom, stream: Stream, resting: Resting, dead_max: int, opened_max: int
    ) -> Resting | None:
        """Decides about one stretch. Returns what of it has no room."""
        record.looks += 1
        if resting.over or stream.feed.gone or self._is_given_up(stream, resting):
            return None
        if self._next(stream, resting) is not _Next.COPY:
            self._counting.add(stream, resting)  # The dead-letter key went to another slice.
            return None
        end, to = resting.first, min(resting.to, resting.first + dead_max - record.dead)
        while end < to and self._originals.opened_bytes <= opened_max:
            size_bytes = self._originals.size_bytes(stream, end)
            if not record.take(size_bytes):
                break
            end += 1
        if end == resting.first:
            return resting
        rest = None
        if end < resting.to:
            resting, rest = split(stream, resting, end)
        record.retries += 1
        self._propose(stream, resting, Fate.DEAD)
        return rest

    def _is_given_up(self, stream: Stream, resting: Resting) -> bool:
        """Returns whether the key gave up some of it; what is left of it waits anew then."""
        found = self._state.key_by_id(stream.key_id)
        low = resting.to if found is None else found[1].low
        if low <= resting.first:
            return False
        self._give_up(stream, resting, min(low, resting.to))
        return True

    def _propose(self, stream: Stream, resting: Resting, fate: Fate) -> None:
        of = stream.feed.queue_id, stream.key_id
        retry = Retry(*of, resting.first, resting.to, resting.times, fate, resting.reason)
        self._under_way.append((stream, resting, retry))

    def _line(self, stream: Stream, resting: Resting) -> Undecided:
        return self._dying if self._next(stream, resting) is _Next.COPY else self._counting

    def _next(self, stream: Stream, resting: Resting) -> _Next:
        if resting.sent:
            return _Next.END_SENT
        if resting.times < stream.feed.max_deliveries:
            return _Next.REST if resting.counted else _Next.COUNT
        if not _takes_copies(stream):
            return _Next.END
        dead_letter = stream.feed.dead_letter
        assert isinstance(dead_letter, bytes)
        if self._state.owns(dead_letter):
            return _Next.COPY
        return _Next.SEND if resting.counted else _Next.COUNT


class _RecordRoom:
    """Keeps how much of a record is used up: by counts, or by copies."""

    __slots__ = ("_begun", "_bindings_cost", "_copied_bytes", "dead", "looks", "retries")

    def __init__(self) -> None:
        self._bindings_cost = self._copied_bytes = self.retries = self.dead = self.looks = 0
        self._begun: set[Stream] = set()

    @property
    def cost(self) -> int:
        """Returns what applying it takes, in operations."""
        copies = DEAD_COST * self.dead + self._copied_bytes // FAIR_BYTES_PER_OPERATION
        return self._bindings_cost + self.retries + copies

    def begin(self, stream: Stream) -> bool:
        """Returns whether there is room for a binding. There is for the first one."""
        if stream in self._begun:
            return True
        ranges = sum(len(some) for some in (stream.done, stream.resting, stream.returned) if some is not None)
        cost = 1 + ranges // DONE_RANGES_PER_COST
        if self.retries and self._bindings_cost + self.retries + DEAD_COST * self.dead + cost > RETRIES_COST_PER_RECORD:
            return False
        self._bindings_cost += cost
        self._begun.add(stream)
        return True

    def take(self, size_bytes: int) -> bool:
        """Notes that a message is copied. Returns False if there is no room for it; there is for the first one."""
        if self.dead and self._copied_bytes + size_bytes > DEAD_BYTES_PER_RECORD_MAX:
            return False
        self.dead += 1
        self._copied_bytes += size_bytes
        return True


def _takes_copies(stream: Stream) -> bool:
    """Returns whether the stream's queue has copies made of messages that are given no more."""
    dead_letter = stream.feed.dead_letter
    assert isinstance(dead_letter, bytes)
    return takes_copies(dead_letter, stream.key)
