"""One binding of a queue under consumption: what of its key's log is done, out, to be given again, and next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.limits import DONE_RANGES_MAX

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.feeds import Attachment, Feed


class Out:
    """Offsets first <= o < to that an attachment has and has not acked. `lease_until_ms` 0: until its session ends."""

    __slots__ = ("attachment", "body_bytes", "first", "lease_until_ms", "times", "to")

    def __init__(
        self, first: int, to: int, body_bytes: int, attachment: Attachment, times: int, lease_until_ms: int = 0
    ) -> None:
        self.first = first
        self.to = to
        self.body_bytes = body_bytes
        self.attachment = attachment
        self.times = times
        self.lease_until_ms = lease_until_ms


class Returned(NamedTuple):
    """Offsets to be given again, delivered `times` before."""

    first: int
    to: int
    times: int


class Stream:
    """Invariants: cursor <= next; every offset in between is in exactly one of done, out, returned.

    `flushed`: the cursor that was journaled. `end` 0: bound. `marked`: below it offsets were delivered before.
    `parcel`: number of the last parcel it is in. It joins none with a lower one: that would leave first.
    """

    __slots__ = (
        "cursor",
        "done",
        "end",
        "feed",
        "flushed",
        "key",
        "key_id",
        "lagging",
        "marked",
        "next",
        "out",
        "parcel",
        "returned",
        "unflushed",
    )

    def __init__(self, feed: Feed, key_id: bytes, key: bytes, cursor: int, end: int = 0) -> None:
        self.feed = feed
        self.key_id = key_id
        self.key = key
        self.cursor = self.flushed = self.next = cursor
        self.end = end
        self.lagging = False
        self.marked = 0
        self.parcel = 0
        self.done: Ranges | None = None
        self.out: list[Out] = []
        self.returned: list[Returned] | None = None
        self.unflushed: list[tuple[int, int]] | None = None

    @property
    def finished(self) -> bool:
        return self.end != 0 and self.cursor >= self.end

    @property
    def full_of_ranges(self) -> bool:
        return self.done is not None and len(self.done) >= DONE_RANGES_MAX

    def settle(self, attachment: Attachment, first: int, to: int) -> bool:
        """Takes an ack of what this attachment has out in first <= o < to. True: something was acked."""
        out = self.out
        if len(out) == 1 and out[0].first >= first and out[0].to <= to and out[0].attachment is attachment:
            entry = out.pop()
            attachment.release(entry.to - entry.first, entry.body_bytes)
            self._acked(entry.first, entry.to)
            return True
        kept: list[Out] = []
        acked: list[tuple[int, int]] = []
        for entry in out:
            if entry.attachment is not attachment or entry.to <= first or entry.first >= to:
                kept.append(entry)
            else:
                acked.append(_split(entry, first, to, kept))
        self.out = kept
        for low, high in acked:
            self._acked(low, high)
        return bool(acked)

    def _acked(self, first: int, to: int) -> None:
        if first > self.cursor:
            if self.done is None:
                self.done = Ranges()
            self.done.add(first, to)
            if self.unflushed is None:
                self.unflushed = []
            self.unflushed.append((first, to))
            return
        self.cursor = max(self.cursor, to)
        if self.done:
            self.cursor = self.done.end_of(self.cursor)
            self.done.cut_below(self.cursor)
            self.next = max(self.next, self.cursor)  # done ranges were passed, though not yet by reading

    def bind_again(self, start: int) -> None:
        """Bound again from the cursor or above, with backlog left: the time away is a done range."""
        if self.done is None:
            self.done = Ranges()
        if self.end:
            self.done.add(self.end, start)
        if self.next == self.end:
            self.next = max(self.next, start)
        self.cursor = self.done.end_of(self.cursor)
        self.done.cut_below(self.cursor)
        self.next = max(self.next, self.cursor)
        self.end = 0

    def bind_from_below(self, start: int) -> None:
        """Bound again from below the cursor: what was acked there is to be given again; what is out stays out."""
        again = self.cursor
        self.returned = sorted([*(self.returned or ()), Returned(start, again, 0)])
        self.unflushed = [(max(first, again), to) for first, to in self.unflushed or () if to > again]
        self.cursor = start
        self.flushed = min(self.flushed, start)
        self.end = 0

    def purge(self, to: int) -> None:
        """All below `to` is done: the tables say so. What was out is forgotten."""
        for entry in self.out:
            entry.attachment.release(entry.to - entry.first, entry.body_bytes)
        self.out = []
        self.returned = self.done = self.unflushed = None
        self.cursor = self.flushed = self.next = to

    def give_back(self, attachment: Attachment | None, now_ms: int = 0) -> bool:
        """What this attachment (None: whose lease is over) had out is to be given again. True: there was some."""
        kept: list[Out] = []
        back: list[Returned] = []
        for entry in self.out:
            gone = entry.attachment is attachment if attachment else 0 < entry.lease_until_ms <= now_ms
            if gone:
                entry.attachment.release(entry.to - entry.first, entry.body_bytes)
                back.append(Returned(entry.first, entry.to, entry.times + 1))
            else:
                kept.append(entry)
        if back:
            self.out = kept
            self.returned = sorted([*(self.returned or ()), *back])
        return bool(back)

    def take_unflushed(self) -> list[tuple[int, int]]:
        """Acked ranges that the journal does not have yet."""
        ranges = [(self.flushed, self.cursor)] if self.flushed < self.cursor else []
        self.flushed = self.cursor
        if self.unflushed:
            ranges += [pair for pair in self.unflushed if pair[1] > self.cursor]
            self.unflushed = None
        return ranges

    def untake(self, first: int, to: int) -> None:
        """What `take_unflushed` gave did not reach the journal."""
        if first < self.flushed:
            self.flushed = first
        else:
            self.unflushed = [*(self.unflushed or ()), (first, to)]


def _split(entry: Out, first: int, to: int, kept: list[Out]) -> tuple[int, int]:
    """The acked part of an entry; the rest of it goes to `kept`, its bytes with the last part."""
    low, high = max(first, entry.first), min(to, entry.to)
    attachment = entry.attachment
    if entry.first < low:
        kept.append(Out(entry.first, low, 0, attachment, entry.times, entry.lease_until_ms))
    if high < entry.to:
        kept.append(Out(high, entry.to, 0, attachment, entry.times, entry.lease_until_ms))
    rest_bytes = entry.body_bytes if entry.first < low or high < entry.to else 0
    if rest_bytes:
        kept[-1].body_bytes = rest_bytes
    attachment.release(high - low, entry.body_bytes - rest_bytes)
    return low, high
