"""Knows messages that were handed out anew while an earlier ack of theirs has no answer yet: that ack says nothing of
what the program has of them now.

They were nacked and then acked, and came again; or their queue was bound again from earlier on (repeats.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.core.offset_ranges import Ranges, both, count, joined, without
from shoal.core.pair_ranges import Pair, PairRanges
from shoal.core.pending_acks import PendingAcks


class Renewed:
    """Keeps renewed messages of one slice until that ack is answered. `pending`: the acks without an answer, those of
    before and those of now."""

    def __init__(self, pending: PendingAcks) -> None:
        self._pending = pending
        self._unacked = PairRanges()
        self._acked = PairRanges()
        """Those that the program has acked since."""

    def __bool__(self) -> bool:
        return bool(self._unacked or self._acked)

    def add(self, pair: Pair, ranges: Ranges) -> None:
        """Adds messages that are handed out anew."""
        self._acked.take(pair, ranges)
        self._unacked.add(pair, ranges)

    def acks_within(self, key: bytes, handle: int, first: int, end: int) -> Ranges:
        """Returns the ranges of first <= offset < end whose acks have no answer, without those of before."""
        acked = self._pending.within(key, handle, first, end)
        return without(acked, self._unacked.get((key, handle))) if self._unacked and acked else acked

    def messages(self, handle: int) -> int:
        """Returns how many the program has of a handle and has not acked."""
        return sum(map(count, self._unacked.of(handle)))

    def acked(self, pair: Pair, ranges: Ranges) -> None:
        """Takes in that the program acks some."""
        found = both(self._unacked.get(pair), ranges)
        self._unacked.take(pair, found)
        self._acked.add(pair, found)

    def given_back(self, pair: Pair, ranges: Ranges) -> None:
        """Takes in that the program does not have these any more."""
        self._unacked.take(pair, ranges)
        self._acked.take(pair, ranges)

    def answered(self, pair: Pair, ranges: Ranges) -> Ranges:
        """Takes in answered acks, which `pending` has no more. Returns those of which only earlier ones were."""
        unacked, acked = both(self._unacked.get(pair), ranges), both(self._acked.get(pair), ranges)
        left = self._pending.within(*pair, ranges[0][0], ranges[-1][1]) if unacked or acked else ()
        self._unacked.take(pair, without(unacked, left))  # Of what was renewed twice, another earlier one is left.
        self._acked.take(pair, acked)
        return joined(unacked, both(acked, left))

    def forget(self, handles: Iterable[int]) -> None:
        """Forgets all of these handles."""
        handles = list(handles)
        self._unacked.forget(handles)
        self._acked.forget(handles)

    def stream_ended(self) -> PairRanges:
        """Takes in that no ack is under way any more. Returns those that the program had not acked."""
        unacked, self._unacked, self._acked = self._unacked, PairRanges(), PairRanges()
        return unacked
