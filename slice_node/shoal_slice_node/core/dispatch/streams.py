"""Tracks one binding of a consumed queue: what of its key's log is done, out, to be given again, and next.

Long because each offset is in exactly one of these, and all that moves one from here to there stands in one class.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable
from heapq import merge
from operator import attrgetter
from typing import TYPE_CHECKING

from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.delivery_counts import DeliveryCounts
from shoal_slice_node.core.dispatch.stretches import (
    GAP,
    Out,
    Resting,
    RestingStretches,
    Returned,
    begin_behind,
    cut_out,
)
from shoal_slice_node.core.limits import DONE_RANGES_MAX
from shoal_slice_node.core.ranges import Ranges

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.leases import Lease

_FIRST, _TO = attrgetter("first"), attrgetter("to")
_NOT_COUNTED = -1


class Stream:
    """Tracks one binding. Invariants: cursor <= next; every offset in between is in exactly one of done, out, returned,
    resting. `out` ascends. `out_messages`: those in `out`, without gaps, in `resting`, and taken from these and not
    released yet (releases.py).

    `acks_under_way`: the number of records with acks of this stream that are not applied yet. `end` 0: still bound.
    `lagging`: it is in its feed's `lagging`. `marked`: offsets below it were delivered before. `parcel`: the number of
    the last parcel that this stream is in; it joins no parcel with a lower number, as that one leaves earlier.
    `passed`: what is not kept below it was told, or is out. Another module that writes fields: growing.py, where a
    chunk is given to many streams.
    """

    __slots__ = (
        "_counted",
        "_flushed",
        "_unflushed",
        "acks_under_way",
        "cursor",
        "done",
        "end",
        "feed",
        "key",
        "key_id",
        "lagging",
        "marked",
        "next",
        "out",
        "out_messages",
        "parcel",
        "passed",
        "resting",
        "returned",
    )

    def __init__(
        self, feed: Feed, key_id: bytes, key: bytes, cursor: int, end: int = 0, done: Ranges | None = None
    ) -> None:
        self.feed = feed
        self.key_id = key_id
        self.key = key
        self.cursor = self.next = cursor
        self.end = end
        self.lagging = False
        self.marked = 0
        self.parcel = 0
        self.passed = 0
        self.done = done
        self.out: list[Out] = []
        self.out_messages = 0
        self.acks_under_way = 0
        self.returned: list[Returned] | None = None
        self.resting: RestingStretches | None = None
        self._counted = _NOT_COUNTED
        """How many ranges the feed counts of this stream."""
        self._flushed = cursor
        """The cursor that was journaled. Invariant: at most `cursor`."""
        self._unflushed: list[tuple[int, int]] | None = None
        """Acked ranges above the cursor that were not journaled."""

    @property
    def finished(self) -> bool:
        return self.end != 0 and self.cursor >= self.end

    @property
    def is_flushed(self) -> bool:
        """Returns whether a flush, or a change, has taken all acks."""
        return self._unflushed is None and self._flushed == self.cursor

    @property
    def unflushed_ranges(self) -> int:
        """Returns how many acked ranges no flush has taken; more if some of them touch."""
        return len(self._unflushed or ()) + (self._flushed < self.cursor)

    @property
    def messages_allowed(self) -> int:
        """Returns how many messages may be given now, so that done ranges stay about DONE_RANGES_MAX however they are
        acked. If nothing is out and half of the ranges are free, any number: a chunk is not split then. 0 or less: only
        the lowest message, as where there are ranges and no memory for more."""
        ranges = len(self.done) if self.done is not None else 0
        if ranges and self.feed.is_short:
            return 0
        if not self.out_messages and 2 * ranges <= DONE_RANGES_MAX:
            return 1 << 62
        return DONE_RANGES_MAX - ranges - self.out_messages

    def begin_count(self) -> None:
        """Lets the feed count its ranges, from now on."""
        self._counted = 0
        self._count()

    def end_count(self) -> None:
        """Lets the feed forget its ranges: it has left the feed."""
        if self._counted > 0 and not self.feed.gone:
            self.feed.count_ranges(-self._counted)
        self._counted = _NOT_COUNTED

    def _count(self) -> None:
        """Tells the feed how many done ranges there are now, and stretches to be given again."""
        ranges = (len(self.done) if self.done is not None else 0) + (len(self.returned) if self.returned else 0)
        if ranges != self._counted and self._counted != _NOT_COUNTED and not self.feed.gone:
            self.feed.count_ranges(ranges - self._counted)
            self._counted = ranges

    def give(
        self, first: int, to: int, body_bytes: int, attachment: Attachment, times: int, lease: Lease | None = None
    ) -> None:
        """Notes that these offsets are out."""
        if times != GAP:
            self.out_messages += to - first
        attachment.hold(to - first, body_bytes)
        out = self.out
        if not out:
            out.append(Out(first, to, body_bytes, attachment, times, lease))
        else:
            last = out[-1]
            if last.to > first:
                index = bisect_left(out, first, key=_FIRST)
                out.insert(index, Out(first, to, body_bytes, attachment, times, lease))
            elif last.to == first and last.attachment is attachment and last.times == times and last.lease is lease:
                last.grow(to, body_bytes)
                return
            else:
                out.append(Out(first, to, body_bytes, attachment, times, lease))
        attachment.session.owe(1)

    def give_on_from(self, offset: int) -> None:
        """Notes that `offset` is the next one: what lies below was given, or is not kept any more."""
        assert offset >= self.next
        self.next = offset

    def give_again_from(self, offset: int) -> None:
        """Notes that of the first returned range what lies below `offset` was given again, or is not kept any more."""
        assert self.returned
        _, to, times = self.returned[0]
        if offset < to:
            self.returned[0] = Returned(offset, to, times)
        else:
            del self.returned[0]
            self._count()

    def lacks_below(self, low: int) -> bool:
        """Returns whether something below `low`, which the key does not keep any more, is neither done, nor told, nor
        out."""
        if self.cursor >= low:
            return False
        return self.passed < low or bool(self.returned and self.returned[0].first < low)

    def note_passed(self, low: int) -> None:
        """Notes that a consumer was told of all below `low` that is not kept, but for what is out."""
        self.passed = low

    def forget_returned(self, first: int = 0, to: int = 1 << 64) -> None:
        """Notes that nothing of first <= o < to is to be given again: it is gone, or done."""
        if self.returned:
            cut_out(self.returned, first, to)
            self.returned = self.returned or None
            self._count()

    def join_parcel(self, number: int) -> None:
        """Notes that the stream is in this parcel, the last of its parcels."""
        self.parcel = number

    def mark_delivered(self, to: int) -> None:
        """Notes that what is not done below `to` was delivered before."""
        self.marked = to

    def note_lagging(self, lagging: bool) -> None:
        """Notes what the feed decided, which lists the streams that lag."""
        self.lagging = lagging

    def unbind(self, end: int) -> None:
        """Notes that the binding ended, with a backlog up to `end`."""
        self.end = end

    def settle(self, attachment: Attachment, first: int, to: int) -> int:
        """Takes an ack of what this attachment has out in first <= o < to. Returns how many messages were acked."""
        out = self.out
        if out and first <= out[0].first < to and out[0].attachment is attachment:
            if out[0].to > to:
                return self._settle_beginning(out[0], to)
            if len(out) == 1 and out[0].times != GAP:
                entry = out.pop()
                messages = entry.to - entry.first
                self.out_messages -= messages  # As in _released.
                attachment.release(messages, entry.body_bytes)
                attachment.session.owe(-1)
                if entry.lease is not None:
                    entry.lease.release(messages)
                self._acked(entry.first, entry.to)
                return messages
        return self._done(self.take_back(attachment, first, to))

    def settle_gaps(self, attachment: Attachment, first: int, to: int) -> int:
        """Notes that this attachment was told of the gaps that it has out in first <= o < to. Messages that it has out
        there stay out: a gap may span them. Returns how many offsets are done by that."""
        return self._done(self.take_back(attachment, first, to, only_gaps=True))

    def _done(self, taken: list[Returned]) -> int:
        for low, high, _ in taken:
            self._acked(low, high)
        return sum(high - low for low, high, _ in taken)

    def take_back(self, attachment: Attachment, first: int, to: int, only_gaps: bool = False) -> list[Returned]:
        """Takes from this attachment what it has out in first <= o < to. Returns it, with how often it was delivered
        before; the caller says what becomes of it: done, resting, or to be given again."""
        out = self.out
        begin = max(0, bisect_right(out, first, key=_FIRST) - 1)
        end = bisect_left(out, to, key=_FIRST)
        kept: list[Out] = []
        cut: list[Returned] = []
        for entry in out[begin:end]:
            if entry.attachment is not attachment or entry.to <= first or (only_gaps and entry.times != GAP):
                kept.append(entry)
            else:
                low, high = self._split(entry, first, to, kept)
                cut.append(Returned(low, high, entry.times))
        if cut:
            out[begin:end] = kept
        return cut

    def span_out(self, first: int, to: int, stretches_max: int) -> int:
        """Returns up to where first <= o < to has at most so many stretches that are out: more than `first`."""
        behind = begin_behind(self.out, first, stretches_max) if len(self.out) > stretches_max else None
        return to if behind is None else min(to, behind)

    def span(self, first: int, to: int, stretches_max: int) -> int:
        """Returns the same where it has at most so many that are out, so many that rest, and so many done ranges."""
        to = self.span_out(first, to, stretches_max)
        for some in (self.done, self.resting):
            behind = some.begin_behind(first, stretches_max) if some else None
            to = to if behind is None else min(to, behind)
        return to

    def out_within(self, first: int, to: int) -> int:
        """Returns how many stretches with some of first <= o < to are out."""
        begin = bisect_right(self.out, first, key=_TO)
        return max(0, bisect_left(self.out, to, lo=begin, key=_FIRST) - begin)

    def count_held(self, attachment: Attachment, first: int, to: int) -> int:
        """Returns how many of them this attachment has."""
        begin = bisect_right(self.out, first, key=_TO)
        end = bisect_left(self.out, to, lo=begin, key=_FIRST)
        return sum([one.attachment is attachment for one in self.out[begin:end]])

    def held(self, first: int, to: int) -> list[tuple[Attachment, int, int]]:
        """Returns the stretches that are out in first <= o < to, each with the attachment that has it."""
        begin = max(0, bisect_right(self.out, first, key=_FIRST) - 1)
        end = bisect_left(self.out, to, key=_FIRST)
        some = self.out[begin:end]
        return [(one.attachment, max(first, one.first), min(to, one.to)) for one in some if one.to > first]

    def _split(self, entry: Out, first: int, to: int, kept: list[Out]) -> tuple[int, int]:
        """Returns the acked part of an entry. The rest goes to `kept`, with bytes by its share of the messages."""
        low, high = max(first, entry.first), min(to, entry.to)
        messages, body_bytes = entry.to - entry.first, entry.body_bytes
        rest = messages - (high - low)
        rest_bytes = body_bytes * rest // messages
        acked_bytes = body_bytes - rest_bytes
        entries = 0
        if entry.first < low:
            before_bytes = rest_bytes * (low - entry.first) // rest
            kept.append(Out(entry.first, low, before_bytes, entry.attachment, entry.times, entry.lease))
            rest_bytes -= before_bytes
            entries = 1
        if high < entry.to:
            kept.append(Out(high, entry.to, rest_bytes, entry.attachment, entry.times, entry.lease))
            entries += 1
        self._released(entry, messages - rest, acked_bytes, 1 - entries)
        return low, high

    def _settle_beginning(self, entry: Out, to: int) -> int:
        """Takes an ack of an entry's first messages: the usual one where many chunks are out."""
        low = entry.first
        self._released(entry, to - low, entry.shrink(to), 0)
        self._acked(low, to)
        return to - low

    def _released(self, entry: Out, messages: int, body_bytes: int, stretches: int) -> None:
        """Notes that of this entry so much is not out any more. `stretches`: how many fewer entries there are; -1 if it
        was split in two."""
        if entry.times != GAP:
            self.out_messages -= messages
        attachment = entry.attachment
        attachment.release(messages, body_bytes)
        if stretches:
            attachment.session.owe(-stretches)
        if entry.lease is not None:
            entry.lease.release(messages)

    def _acked(self, first: int, to: int) -> None:
        if first > self.cursor:
            if self.done is None:
                self.done = Ranges()
            self.done.add(first, to)
            if self._unflushed is None:
                self._unflushed = []
            self._unflushed.append((first, to))
            self._count()
            return
        self.cursor = max(self.cursor, to)
        if self.done:
            self.cursor = self.done.end_of(self.cursor)
            self.done.cut_below(self.cursor)
            self.next = max(self.next, self.cursor)  # past done ranges that were not read yet
            self._count()

    def acked_by_change(self, first: int, to: int) -> list[Out]:
        """Notes that first <= offset < to, which was not done, is done in the tables, whether it is out, to be given
        again, or not given yet. Returns what was out, for `release`."""
        level = self.is_flushed
        taken = self.acked_anywhere(first, to)
        if level:  # Else the next flush takes it once more, which changes nothing.
            self._flushed, self._unflushed = self.cursor, None
        return taken

    def acked_anywhere(self, first: int, to: int) -> list[Out]:
        """Notes that first <= offset < to is done, whether it is out, to be given again, or not given yet; nothing of
        it may rest. Returns what was out, for `release`."""
        taken = self._take_out(first, to)
        self._acked(first, to)
        self.next = max(self.next, self.cursor)
        self.forget_returned(first, to)
        return taken

    def unacked(self, first: int, to: int) -> list[tuple[int, int]]:
        """Returns the stretches of first <= offset < to that are neither done nor rest, whatever is published yet.
        It looks at the `known_within` this."""
        return _between(first, to, *(some.walk(first, to) for some in (self.done, self.resting) if some))

    def known_within(self, first: int, to: int) -> int:
        """Returns how many done ranges and stretches that rest have some of first <= o < to."""
        return sum(some.count_within(first, to) for some in (self.done, self.resting) if some)

    def _take_out(self, first: int, to: int) -> list[Out]:
        """Takes what is out of first <= o < to. Until the caller calls `release` it still counts for those that had
        it, and in `out_messages`."""
        out = self.out
        begin = bisect_right(out, first, key=_FIRST)
        if begin and out[begin - 1].to > first:
            begin -= 1
        end = bisect_left(out, to, lo=begin, key=_FIRST)
        taken = out[begin:end]
        kept: list[Out] = []
        if taken and taken[0].first < first:
            before, taken[0] = taken[0].split(first)
            before.attachment.session.owe(1)
            kept.append(before)
        if taken and taken[-1].to > to:
            taken[-1], behind = taken[-1].split(to)
            behind.attachment.session.owe(1)
            kept.append(behind)
        out[begin:end] = kept
        return taken

    def undelivered(self, first: int, to: int) -> list[tuple[int, int]]:
        """Returns the stretches of first <= offset < to that are neither done nor out."""
        out = [(low, high) for _, low, high in self.held(first, to)]
        return _between(first, to, self.done.walk(first, to) if self.done else (), out)

    def delivered_within(self, first: int, to: int) -> int:
        """Returns how many done ranges, and stretches that are out, have some of first <= o < to."""
        return self.out_within(first, to) + (self.done.count_within(first, to) if self.done else 0)

    def rebind(self, start: int) -> None:
        """Notes that the binding, which ended with a backlog, is bound again. From `start` on all messages are to be
        seen, even acked ones, except those that are out. Below `start` the backlog stays. If `start` is above the end,
        the time away is a done range."""
        done = self.done = self.done if self.done is not None else Ranges()
        again = [Returned(low, min(high, self.next), 0) for low, high in done.cut_above(start) if low < self.next]
        if start < self.cursor:
            again.append(Returned(start, self.cursor, 0))
            self.cursor = start
            self._flushed = min(self._flushed, start)
        if start > self.end:
            done.add(self.end, start)
            if self.next == self.end:
                self.next = start
        if again:
            self.returned = sorted([*(self.returned or ()), *again])
        self.end, self.marked = 0, min(self.marked, start)
        self.cursor = done.end_of(self.cursor)
        done.cut_below(self.cursor)
        self.next = max(self.next, self.cursor)
        self._count()

    def purge(self, to: int) -> None:
        """Notes that all below `to` is done, as in the tables. `forget_out` must have been called before."""
        assert not self.out
        self.returned = self.done = self._unflushed = None
        self.cursor = self._flushed = self.next = to
        self._count()

    def forget_out(self) -> list[Out]:
        """Stops waiting for acks. Returns what was out, for `release`: until then it still counts for those that had
        it, and in `out_messages`."""
        forgotten, self.out = self.out, []
        return forgotten

    def forget_ranges(self) -> None:
        """Forgets what is done: the stream has left its feed, and is not used any more. Delays and records that are on
        their way may name it for long, and no memory is counted for that."""
        self.returned = self.done = self._unflushed = None

    def take_all_back(self, attachments: Container[Attachment]) -> list[Out]:
        """Takes back all that these attachments have out. Returns it; the caller says what becomes of it."""
        back = [entry for entry in self.out if entry.attachment in attachments]
        if back:
            self.out = [entry for entry in self.out if entry.attachment not in attachments]
        return self.release(back)

    def take_lease_back(self, lease: Lease) -> list[Out]:
        """Takes back what is out under a lease. Returns it, as `take_all_back` does."""
        back = [entry for entry in self.out if entry.lease is lease]
        if back:
            self.out = [entry for entry in self.out if entry.lease is not lease]
        return self.release(back)

    def release(self, entries: list[Out]) -> list[Out]:
        """Notes that what was taken from `out` counts for its attachments no more. Returns it."""
        for entry in entries:
            self._released(entry, entry.to - entry.first, entry.body_bytes, 1)
        return entries

    def give_again(self, back: list[Returned]) -> None:
        """Notes that what came back is to be given again."""
        if not back:
            return
        returned, back = self.returned or [], sorted(back)
        index = bisect_left(returned, back[0])
        if index == len(returned) or back[-1] < returned[index]:
            returned[index:index] = back
            self.returned = returned
        else:
            self.returned = sorted([*returned, *back])
        self._count()

    def rest(self, back: Returned, reason: Reason, delay_ms: int, session: int) -> Resting:
        """Notes that what came back is not to be given yet. `session`: see Resting."""
        resting = Resting(back, reason, delay_ms, session)
        self.rest_on(resting)
        return resting

    def rest_on(self, resting: Resting) -> None:
        """Notes that this rests from now on."""
        if self.resting is None:
            self.resting = RestingStretches()
        self.resting.add(resting)
        messages = resting.to - resting.first
        self.out_messages += messages
        self.feed.begin_rest(resting.session, messages)

    def end_rest(self, resting: Resting) -> bool:
        """Notes that this rests no more; the caller says what becomes of it. Returns False if it was over already."""
        if resting.over:
            return False
        assert self.resting is not None
        self.resting.remove(resting)
        resting.end()
        messages = resting.to - resting.first
        self.out_messages -= messages
        self.feed.end_rest(resting.session, messages)
        return True

    def take_rests(self, first: int = 0, to: int = 1 << 62) -> list[Resting]:
        """Ends the rest of all stretches with some of first <= o < to. Returns them, for `release_rests`: until then
        they still count as resting."""
        taken = self.resting.take(first, to) if self.resting else []
        for resting in taken:
            resting.end()
        return taken

    def release_rests(self, taken: list[Resting]) -> None:
        """Notes that what `take_rests` returned counts no more."""
        for resting in taken:
            messages = resting.to - resting.first
            self.out_messages -= messages
            self.feed.end_rest(resting.session, messages)

    def take_returned(self, returned: Returned) -> None:
        """Notes that this is not to be given again; the caller says what becomes of it."""
        assert self.returned
        self.returned.remove(returned)
        self._count()

    def load_counts(self, counts: DeliveryCounts) -> None:
        """Notes how often messages were delivered, for a stream that was just made: all up to the last one with a count
        is to be given again."""
        self.next = max(self.cursor, counts.end)
        stretches = self.done.gaps(self.cursor, self.next) if self.done else [(self.cursor, self.next)]
        self.returned = [Returned(*one) for low, to in stretches for one in counts.pieces(low, to)]

    def done_at_once(self, first: int, to: int) -> None:
        """Notes that these offsets, which rested, are done."""
        self._acked(first, to)

    @property
    def stretches(self) -> int:
        """Returns how many stretches are out, or rest."""
        return len(self.out) + len(self.resting or ())

    @property
    def comes_back(self) -> bool:
        """Returns whether something is out with an attachment that left: it comes back, and nothing behind it may be
        given before it is."""
        return any(not entry.attachment.attached for entry in self.out)

    @property
    def lowest(self) -> int:
        """Returns the offset of what is given next: what came back comes first."""
        return self.returned[0].first if self.returned else self.next

    def waits_below(self, offset: int) -> bool:
        """Returns whether something below `offset` is out, or rests."""
        is_out = bool(self.out) and self.out[0].first < offset
        return is_out or bool(self.resting and self.resting.lowest < offset)

    def begin_acks(self) -> list[tuple[int, int]]:
        """Returns acked ranges that the journal does not have yet. If there are any, they are under way until
        `end_acks` is called."""
        assert self._flushed <= self.cursor
        ranges = [(self._flushed, self.cursor)] if self._flushed < self.cursor else []
        self._flushed = self.cursor
        if self._unflushed:
            done = self.done
            for first, to in self._unflushed:
                if to > self.cursor and done is not None:
                    ranges += done.within(first, to)
            self._unflushed = None
        if ranges:
            self.acks_under_way += 1
            self.feed.begin_acks()
        return ranges

    def end_acks(self) -> None:
        """Notes that a record with acks of this stream was applied, or will not be."""
        self.acks_under_way -= 1
        self.feed.end_acks()

    def ack_again(self, first: int, to: int) -> None:
        """Undoes `begin_acks` for offsets that did not reach the journal: a later flush takes them again."""
        if first < self._flushed:
            self._flushed = first
        else:
            self._unflushed = [*(self._unflushed or ()), (first, to)]


def _between(first: int, to: int, *parts: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns what is in none of these parts of first <= o < to. Each of `parts` ascends; they do not overlap."""
    found: list[tuple[int, int]] = []
    for low, high in merge(*parts):
        if first < low:
            found.append((first, low))
        first = high
    if first < to:
        found.append((first, to))
    return found
