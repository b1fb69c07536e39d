"""Knows messages whose acks a slice has, as it told after a lost stream, while copies of them may be on their way.

The slice may have put a copy on its way before it took the ack, and answers overtake deliveries: that is no new
message. What it puts on its way later is one: the queue was bound again from earlier on. A nack that names nothing
tells them apart, sent as soon as it is known that they are acked: each delivery tells which numbered nacks the slice
had looked at before it was put on its way. So what is behind that nack is new. What is before it is nacked, unseen, and
not acked: of a copy the slice has the ack, and what is of another binding all the same comes again. Pure. Not here:
sending these nacks (../ack_doubts.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from shoal.core.handled_ranges import HandledRange
from shoal.core.offset_ranges import Ranges, within, without
from shoal.core.pair_ranges import Pair, PairRanges


class Settled:
    """Keeps settled messages of one stream until the nack behind them is passed: most go with the next delivery. They
    were remembered as in doubt until then, which bounds them."""

    def __init__(self) -> None:
        self._copies = PairRanges()
        self.nack = 0
        """The number of the nack behind them; 0: there are none."""

    def add(self, pair: Pair, ranges: Ranges) -> None:
        """Adds messages. `nack` is to be set then."""
        self._copies.add(pair, ranges)

    def passed(self, number: int) -> None:
        """Takes in that the slice had looked at all nacks up to this one before it put on its way what comes now."""
        if number >= self.nack:
            self.clear()

    def split(
        self, key: bytes, first: int, end: int, handles: Sequence[int]
    ) -> tuple[list[HandledRange], list[HandledRange]]:
        """Splits first <= offset < end of a key, which came for these handles. Returns what may be new, in order, and
        what may be copies."""
        whole: Ranges = ((first, end),)
        groups: dict[Ranges, list[int]] = {}
        for handle in handles:
            groups.setdefault(within(self._copies.get((key, handle)), first, end), []).append(handle)
        new = [(low, high, same) for copies, same in groups.items() for low, high in without(whole, copies)]
        return sorted(new, key=itemgetter(0)), [(*one, same) for copies, same in groups.items() for one in copies]

    def forget(self, handles: Iterable[int]) -> None:
        """Forgets all of these handles."""
        self._copies.forget(handles)

    def clear(self) -> None:
        """Forgets all: what was on its way has come, or ended with its stream."""
        self._copies, self.nack = PairRanges(), 0
