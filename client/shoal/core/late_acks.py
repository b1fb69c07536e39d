"""Knows acks that came too late: the slice answered them, had taken their messages back by then, and has them unacked.

Their messages come again, here or to another consumer. Those that come here are acked again and not handed out
(repeats.py). Not here: asking what became of the others (../late_asking.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.acks import Acked
from shoal.core.offset_ranges import Ranges, both, count, without
from shoal.core.pair_ranges import Pair, PairRanges


class LateAcks:
    """Keeps late acks of one slice. What is kept was handed out and is remembered, which bounds it."""

    def __init__(self) -> None:
        self._late = PairRanges()
        self._untold = PairRanges()
        """The part of `_late` that no flush has told of."""
        self._forgotten = 0
        """The number of messages forgotten at a bound while untold."""

    def __bool__(self) -> bool:
        """Returns whether there are late acks."""
        return bool(self._late)

    @property
    def waits(self) -> bool:
        """Returns whether there are some that no flush has told of, and that may take effect yet."""
        return bool(self._untold)

    def add(self, pair: Pair, ranges: Ranges) -> None:
        """Adds late acks."""
        self._untold.add(pair, without(ranges, self._late.get(pair)))
        self._late.add(pair, ranges)

    def get(self, pair: Pair) -> Ranges:
        """Returns the late acks of a pair."""
        return self._late.get(pair)

    def take(self, pair: Pair, ranges: Ranges) -> None:
        """Removes what came again, or what the slice says is acked."""
        for book in (self._late, self._untold):
            book.take(pair, ranges)

    def lose(self, pair: Pair, ranges: Ranges) -> None:
        """Removes what is forgotten at a bound: it is handed out if it comes again."""
        self._forgotten += count(both(self._untold.get(pair), ranges))
        self.take(pair, ranges)

    def forget(self, handles: Iterable[int]) -> None:
        """Removes all of these handles."""
        handles = list(handles)
        for book in (self._late, self._untold):
            book.forget(handles)

    def copy(self) -> PairRanges:
        """Returns a copy of what there is."""
        return self._late.copy()

    def take_untold(self) -> int:
        """Returns how many messages no flush has told of, each counted for each of its queues; now one does."""
        untold = self._forgotten + sum(count(ranges) for _, ranges in self._untold.items())
        self._untold, self._forgotten = PairRanges(), 0
        return untold

    def divide(self, unacked: Iterable[Acked]) -> None:
        """Has these asked for in halves from now on: the slice says that not all of their messages are acked."""
        for key, first, end, handles in unacked:
            for handle in handles:
                for book in (self._late, self._untold):
                    book.divide((key, handle), end - first)  # type: ignore[arg-type]  # a handle

    def some(self, ranges_max: int) -> list[Acked]:
        """Returns so many ranges of late acks of which no flush has told, and so many of all. The next call goes on
        behind them: all have their turn."""
        found = self._untold.take_turns(ranges_max)
        for pair, ranges in self._late.take_turns(ranges_max).items():
            found[pair] = tuple(sorted({*found.get(pair, ()), *ranges}))  # Not joined: they may be halves.
        return acks_of(found.items())


def acks_of(items: Iterable[tuple[Pair, Ranges]]) -> list[Acked]:
    """Returns pairs with their ranges as acks; handles with equal ranges of a key together."""
    found: dict[tuple[bytes, int, int], list[int]] = {}
    for (key, handle), ranges in items:
        for first, end in ranges:
            found.setdefault((key, first, end), []).append(handle)
    return [Acked(*span, handles) for span, handles in found.items()]
