"""Knows messages that were handed out anew while an earlier ack of theirs has no answer yet: that ack says nothing of
what the program has of them now.

They were nacked and then acked, and came again; or their queue was bound again from earlier on (repeats.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.offset_ranges import Ranges, both, count, joined, within, without
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
        self._gone = PairRanges()
        """Messages that were acked and that the program does not have, as far as known: they are renewed if they
        come."""

    def __bool__(self) -> bool:
        return bool(self._unacked or self._acked or self._gone)

    def among(self, key: bytes, handles: Sequence[int]) -> set[int]:
        """Returns those of the handles for which some messages of the key are here."""
        return {handle for book in (self._unacked, self._acked, self._gone) for handle in book.among(key, handles)}

    def add(self, pair: Pair, ranges: Ranges) -> None:
        """Adds messages that are handed out anew."""
        self._acked.take(pair, ranges)
        self._gone.take(pair, ranges)
        self._unacked.add(pair, ranges)

    def add_gone(self, pair: Pair, ranges: Ranges) -> None:
        """Takes in that the program acks messages that it does not have: it nacked or acked them before."""
        self._gone.add(pair, ranges)

    def came(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Takes in new messages that are handed out."""
        for handle in self._gone.among(key, handles):
            gone = within(self._gone.get((key, handle)), first, end)
            self.add((key, handle), both(gone, self._pending.within(key, handle, first, end)))

    def acks_within(self, key: bytes, handle: int, first: int, end: int) -> Ranges:
        """Returns the ranges of first <= offset < end whose acks have no answer, without those of before."""
        acked = self._pending.within(key, handle, first, end)
        return without(acked, self._unacked.get((key, handle))) if self._unacked and acked else acked

    def messages(self, handle: int) -> int:
        """Returns how many the program has of a handle and has not acked."""
        return sum(map(count, self._unacked.of(handle)))

    def acked(self, key: bytes, ranges: Ranges, handles: Sequence[int]) -> None:
        """Takes in that the program acks some."""
        for handle in self._unacked.among(key, handles):
            found = both(self._unacked.get((key, handle)), ranges)
            self._unacked.take((key, handle), found)
            self._acked.add((key, handle), found)

    def given_back(self, key: bytes, ranges: Ranges, handles: Sequence[int]) -> None:
        """Takes in that the program does not have these any more."""
        for book in (self._unacked, self._acked):
            for handle in book.among(key, handles):
                found = both(book.get((key, handle)), ranges)
                book.take((key, handle), found)
                self._gone.add((key, handle), found)

    def answered(self, pair: Pair, ranges: Ranges) -> Ranges:
        """Takes in answered acks, which `pending` has no more. Returns those of which only earlier ones were."""
        unacked, acked, gone = (both(book.get(pair), ranges) for book in (self._unacked, self._acked, self._gone))
        left = self._pending.within(*pair, ranges[0][0], ranges[-1][1]) if unacked or acked or gone else ()
        self._unacked.take(pair, without(unacked, left))  # Of what was renewed twice, another earlier one is left.
        self._gone.take(pair, without(gone, left))
        self._acked.take(pair, acked)
        return joined(unacked, both(acked, left))

    def forget(self, handles: Iterable[int]) -> None:
        """Forgets all of these handles."""
        handles = list(handles)
        for book in (self._unacked, self._acked, self._gone):
            book.forget(handles)

    def stream_ended(self) -> PairRanges:
        """Takes in that no ack is under way any more. Returns those that the program had not acked."""
        unacked = self._unacked
        self._unacked, self._acked, self._gone = PairRanges(), PairRanges(), PairRanges()
        return unacked
