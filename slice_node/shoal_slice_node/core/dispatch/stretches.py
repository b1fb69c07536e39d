"""Stretches of a binding's offsets: what is out, what came back and why, what rests. Streams keep them (streams)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal_slice_node.core.apply.records import Reason

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.leases import Lease

_FIRST, _TO = attrgetter("first"), attrgetter("to")
GAP: Final = -1
"""Stands in `times` of what is out: a gap (gaps.py), of which the consumer that has it is told."""


class Out:
    """Notes the offsets first <= o < to that an attachment has and has not acked. The next offsets, if it is given
    them, join these. `lease` None: they are out until the session ends. `times` GAP: they are gone, and out until the
    consumer is told."""

    __slots__ = ("attachment", "body_bytes", "first", "lease", "times", "to")

    def __init__(
        self, first: int, to: int, body_bytes: int, attachment: Attachment, times: int, lease: Lease | None
    ) -> None:
        self.first = first
        self.to = to
        self.body_bytes = body_bytes
        self.attachment = attachment
        self.times = times
        self.lease = lease

    def grow(self, to: int, body_bytes: int) -> None:
        """Notes that the next offsets, up to `to`, joined these."""
        self.to = to
        self.body_bytes += body_bytes

    def split(self, at: int) -> tuple[Out, Out]:
        """Returns the offsets below `at`, and the others, each with bytes by its share of the messages."""
        before = self.body_bytes * (at - self.first) // (self.to - self.first)
        return (
            Out(self.first, at, before, self.attachment, self.times, self.lease),
            Out(at, self.to, self.body_bytes - before, self.attachment, self.times, self.lease),
        )

    def shrink(self, first: int) -> int:
        """Notes that the offsets below `first` were acked. Returns their bytes, by their share of the messages."""
        body_bytes = self.body_bytes * (first - self.first) // (self.to - self.first)
        self.first = first
        self.body_bytes -= body_bytes
        return body_bytes


class Returned(NamedTuple):
    """Notes the offsets first <= o < to, to be given again; they were delivered `times` times before."""

    first: int
    to: int
    times: int


def cut_out(returned: list[Returned], first: int, to: int) -> None:
    """Takes the offsets first <= o < to out of what is to be given again, which ascends."""
    begin, end = bisect_right(returned, first, key=_TO), bisect_left(returned, to, key=_FIRST)
    if begin >= end:
        return
    returned[begin:end] = [
        Returned(low, high, one.times)
        for one in returned[begin:end]
        for low, high in ((one.first, min(one.to, first)), (max(one.first, to), one.to))
        if low < high
    ]


class Resting:
    """Notes the offsets first <= o < to, which came back and are not to be given yet; they were delivered `times`
    times. `over`: they rest no more. `counted`: the tables have this count. `sent`: their copies are on the slice that
    owns the dead-letter key. `session`: the number of the session that had them; 0: a former leader's."""

    __slots__ = ("counted", "delay_ms", "due_ms", "first", "over", "reason", "sent", "session", "times", "to")

    def __init__(self, back: Returned, reason: Reason, delay_ms: int, session: int = 0) -> None:
        self.first, self.to, self.times = back
        self.session = session
        self.reason = reason
        self.delay_ms = delay_ms
        self.due_ms = 0
        """When the delay is over; 0: it did not begin yet, or there is none."""
        self.over = self.counted = self.sent = False

    def part(self, first: int, to: int) -> Resting:
        """Returns a part of it, which rests as it does."""
        found = Resting(Returned(first, to, self.times), self.reason, self.delay_ms, self.session)
        found.due_ms, found.counted, found.sent = self.due_ms, self.counted, self.sent
        return found

    def begin_delay(self, due_ms: int) -> None:
        """Notes when the delay is over."""
        self.due_ms = due_ms

    def note_counted(self) -> None:
        """Notes that the tables have the count."""
        self.counted = True

    def note_sent(self) -> None:
        """Notes that the copies are where they belong."""
        self.sent = True

    def end(self) -> None:
        """Notes that they rest no more."""
        self.over = True


def begin_behind(stretches: Sequence[Out] | Sequence[Resting], offset: int, count: int) -> int | None:
    """Returns where the stretch begins that is behind the next `count` that end above `offset`; None: there is none.
    The stretches ascend."""
    index = bisect_right(stretches, offset, key=_TO) + count
    return stretches[index].first if index < len(stretches) else None


class RestingStretches:
    """Keeps what rests of one binding, by its offsets. Invariant: the stretches ascend and do not overlap."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[Resting] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Resting]:
        return iter(self._all)

    @property
    def lowest(self) -> int:
        """Returns the lowest offset that rests. Something must rest."""
        return self._all[0].first

    def add(self, resting: Resting) -> None:
        insort(self._all, resting, key=_FIRST)

    def remove(self, resting: Resting) -> None:
        del self._all[bisect_left(self._all, resting.first, key=_FIRST)]

    def take(self, first: int, to: int) -> list[Resting]:
        """Takes out those with some of first <= o < to."""
        begin = bisect_right(self._all, first, key=_TO)
        end = bisect_left(self._all, to, lo=begin, key=_FIRST)
        taken = self._all[begin:end]
        del self._all[begin:end]
        return taken

    def within(self, first: int, to: int) -> list[Resting]:
        """Returns those with some of first <= o < to."""
        begin = max(0, bisect_right(self._all, first, key=_FIRST) - 1)
        end = bisect_left(self._all, to, key=_FIRST)
        return [one for one in self._all[begin:end] if one.to > first]

    def walk(self, first: int, to: int) -> Iterator[tuple[int, int]]:
        """Yields the parts of first <= o < to that rest. They must not change meanwhile."""
        if first < to:
            for index in range(bisect_right(self._all, first, key=_TO), bisect_left(self._all, to, key=_FIRST)):
                one = self._all[index]
                yield max(first, one.first), min(to, one.to)

    def count_within(self, first: int, to: int) -> int:
        """Returns how many have some of first <= o < to."""
        return bisect_left(self._all, to, key=_FIRST) - bisect_right(self._all, first, key=_TO)

    def begin_behind(self, offset: int, count: int) -> int | None:
        """Returns where the one begins that is behind the next `count` that end above `offset`; None: there is none."""
        return begin_behind(self._all, offset, count)


class Rests:
    """Counts the stretches that rest on a slice: all, and by the number of the session that had them last. `queues`:
    the number of queues that they are of."""

    __slots__ = ("_by_session", "queues", "stretches")

    def __init__(self) -> None:
        self._by_session: dict[int, int] = {}
        self.queues = self.stretches = 0

    @property
    def sessions(self) -> int:
        """Returns the number of sessions that they are of, also those that have ended."""
        return len(self._by_session)

    def of(self, session: int) -> int:
        """Returns how many are of one session."""
        return self._by_session.get(session, 0)

    def begin(self, session: int, first_of_queue: bool) -> None:
        """Notes one more."""
        self.stretches += 1
        self.queues += first_of_queue
        self._by_session[session] = self.of(session) + 1

    def end(self, session: int, last_of_queue: bool) -> None:
        """Notes one less."""
        self.stretches -= 1
        self.queues -= last_of_queue
        left = self._by_session.pop(session) - 1
        if left:
            self._by_session[session] = left
