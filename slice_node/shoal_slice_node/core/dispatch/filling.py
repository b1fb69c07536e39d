"""Reads a key's log for a stream that lags: first what must be given again, then on from `next`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.undone import Undone, undone
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.bringing_back import bring_back
from shoal_slice_node.core.dispatch.gaps import DROPPED, EXPIRED, LeaseOf, Passed, pass_over
from shoal_slice_node.core.dispatch.parcels import parcel_bytes
from shoal_slice_node.core.dispatch.recent_chunks import ChunkPart, OpenedChunks, RecentChunks
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import (
    EXPIRED_PER_GAP_MAX,
    LOOKS_PER_COST,
    PARCEL_BYTES_MAX,
    PUMP_TURN_LOOKS,
)
from shoal_slice_node.core.rows.key_row import KeyRow

Give = Callable[[Stream, Attachment, ChunkPart], None]
GiveRun = Callable[[Stream, Attachment, Sequence[ChunkPart]], int]
"""Gives whole chunks that follow each other, until the session has no room. Returns how many it gave."""


class Pick(Protocol):
    """Picks the attachment that gets the next part, or the next chunk: see Feed.pick."""

    def __call__(self, cost_bytes: int, more: int = 0, more_bytes: int = 0, /) -> Attachment | None: ...


class Budget:
    """Keeps what one turn may still read. `chunk_bytes`: bytes of the chunks that are sent. `rows`: parts, and what
    else reading logs costs (LogRows.cost). `gap_bytes`: what gaps may still take in an answer. `looks`: streams that
    may still be looked at. `given`: parts given so far, gaps included. `went_on`: see `goes_on`.
    `was_short`: some stream got only its lowest message, as there was no memory for ranges."""

    __slots__ = ("chunk_bytes", "gap_bytes", "given", "looks", "messages", "rows", "was_short", "went_on")

    def __init__(self, rows: int, chunk_bytes: int, messages: int = 1 << 62, gap_bytes: int = 1 << 62) -> None:
        self.rows = rows
        self.chunk_bytes = chunk_bytes
        self.messages = messages
        self.gap_bytes = gap_bytes
        self.looks = PUMP_TURN_LOOKS
        self.given = 0
        self.went_on = False
        self.was_short = False

    @property
    def spent(self) -> bool:
        if self.rows <= 0 or self.chunk_bytes <= 0 or self.messages <= 0:
            return True
        return self.looks <= 0 or self.gap_bytes <= 0

    def goes_on(self) -> None:
        """Notes that something else was done, as much as a turn may, and that there is more of it."""
        self.given += 1
        self.rows = 0
        self.went_on = True

    def note_short(self, is_short: bool) -> None:
        self.was_short = self.was_short or is_short

    def telling(self, give: Give) -> Give:
        """Returns what gives a gap, and spends it."""

        def tell(stream: Stream, attachment: Attachment, gap: ChunkPart) -> None:
            self.given += 1
            self.rows -= 1
            self.gap_bytes -= PARCEL_BYTES_MAX
            give(stream, attachment, gap)

        return tell

    def spend(self, part: ChunkPart) -> None:
        self.given += 1
        self.rows -= 1
        self.chunk_bytes -= len(part.chunk) + PARCEL_BYTES_MAX
        self.messages -= part.to - part.low

    def spend_run(self, parts: Sequence[ChunkPart]) -> None:
        """Spends parts that follow each other."""
        self.given += len(parts)
        self.rows -= len(parts)
        self.chunk_bytes -= sum([len(part.chunk) for part in parts]) + PARCEL_BYTES_MAX * len(parts)
        self.messages -= parts[-1].to - parts[0].low


def fill(
    registry: Registry,
    stream: Stream,
    pick: Pick,
    give: Give,
    budget: Budget,
    lease_of: LeaseOf,
    give_run: GiveRun | None = None,
) -> bool:
    """Gives what the stream lacks. Returns True if the stream has caught up. Returns False if no attachment has room,
    the budget is spent, the stream has as many done ranges as are allowed and waits for acks, or something of it comes
    back soon. `give_run`: does as `give` with each of many chunks, sooner."""
    cost = 0
    if registry.leaving and stream.out:
        back = bring_back(registry, stream)
        if not back.is_all:
            budget.goes_on()
            return False
        if back.attachments:
            budget.given += 1  # So the stream does not count as one that waits for acks.
        cost = back.cost
    state = registry.state
    found = state.key_by_id(stream.key_id)
    if found is None:
        stream.forget_returned()
        return True
    key = found[1]
    low = min(key.low, stream.end or key.low)
    if stream.lacks_below(low):
        why = DROPPED if key.options.drops_oldest else EXPIRED
        cost += stream.delivered_within(stream.cursor, low)
        passed = pass_over(registry, stream, stream.cursor, low, why, pick, budget.telling(give), lease_of)
        if passed is Passed.NO_ROOM:
            budget.looks -= 1 + cost * LOOKS_PER_COST
            return False
        if passed is Passed.OVER:
            budget.given += 1
            budget.rows -= 1
        stream.note_passed(low)
    rows = LogRows(state.tables.log, key)
    filling = _Filling(registry, rows, stream, key, pick, give, budget, lease_of, give_run)
    if stream.messages_allowed > 0:
        caught_up = filling.give_again() and filling.give_next()
    else:
        budget.note_short(stream.feed.is_short)  # Now: what comes back, or is given, may change it.
        filling.give_lowest()
        caught_up = False
    filling.count_reading()
    budget.looks -= 1 + cost * LOOKS_PER_COST  # Only now: every turn makes progress.
    return caught_up


class _Filling:
    """Fills one stream, in one turn."""

    def __init__(
        self,
        registry: Registry,
        rows: LogRows,
        stream: Stream,
        key: KeyRow,
        pick: Pick,
        give: Give,
        budget: Budget,
        lease_of: LeaseOf,
        give_run: GiveRun | None,
    ) -> None:
        self._stream = stream
        self._key = key
        self._rows = rows
        self._pick = pick
        self._give = give
        self._budget = budget
        self._registry = registry
        self._recent: RecentChunks = registry.recent
        self._opened: OpenedChunks = registry.opened
        self._expiry_clock_ms = registry.expiry_clock_ms
        self._lease_of = lease_of
        self._give_run = give_run

    def give_again(self) -> bool:
        stream = self._stream
        while stream.returned:
            first, to, times = stream.returned[0]
            for found in self._undone(first, to):
                if has_expired(found.stored.header.expires_ms, self._expiry_clock_ms):
                    if not self._pass_expired(found, to):
                        return False
                    break  # What is to be given again is another list now.
                given = self._give_found(found, times)
                if given and given < to:
                    stream.give_again_from(given)
                if given < found.to:
                    return False
            else:
                stream.give_again_from(to)
        return True

    def give_next(self) -> bool:
        stream = self._stream
        end = stream.end or self._key.head
        if not self._give_recent(end):
            return False
        while stream.next < end:
            for found in self._undone(stream.next, end):
                if has_expired(found.stored.header.expires_ms, self._expiry_clock_ms):
                    if not self._pass_expired(found, end):
                        return False
                    break  # Done ranges may have been added.
                given = self._give_found(found, 0)
                if given:
                    stream.give_on_from(given)
                if given < found.to:
                    return False
            else:
                if stream.next < end:
                    stream.give_on_from(end)
        return True

    def _pass_expired(self, found: Undone, end: int) -> bool:
        """Passes over messages that have expired, with those of the chunks behind that have, up to `end`. Returns False
        if nothing was done: no attachment has room, the budget is spent, or the stream waits for acks."""
        stream, budget = self._stream, self._budget
        if budget.spent or stream.messages_allowed <= 0:
            return False
        return self._pass_run(found, end)

    def _pass_run(self, found: Undone, end: int) -> bool:
        stream, budget, to = self._stream, self._budget, found.to
        for _ in range(EXPIRED_PER_GAP_MAX):
            stored = self._rows.at(to) if to < end else None
            if stored is None or not has_expired(stored.header.expires_ms, self._expiry_clock_ms):
                break
            to = min(stored.end, end)
            budget.rows -= 1
        give = budget.telling(self._give)
        budget.looks -= stream.delivered_within(found.low, to) * LOOKS_PER_COST
        passed = pass_over(self._registry, stream, found.low, to, EXPIRED, self._pick, give, self._lease_of)
        if passed is Passed.NO_ROOM:
            return False
        budget.given += 1
        budget.rows -= 1
        self.count_reading()
        return True

    def _give_recent(self, end: int) -> bool:
        """Gives whole chunks that were read for another queue a moment ago. Returns False if no attachment has room."""
        stream, budget = self._stream, self._budget
        while stream.next < end and not stream.done and stream.next >= stream.marked and not budget.spent:
            part = self._recent.get(stream.key_id, stream.next)
            if part is None or part.to > end or part.to - part.low > min(budget.messages, stream.messages_allowed):
                break
            if has_expired(part.expires_ms, self._expiry_clock_ms):
                break
            more, cost_bytes = part.to - part.low - 1, parcel_bytes(part.chunk, part.key)
            attachment = self._pick(cost_bytes, more, part.body_bytes - part.body_bytes // (more + 1))
            if attachment is None:
                if more:
                    break  # There may be room for a part: it is cut from the chunk in the log.
                return False
            if not self._fits(attachment, part):
                return False
            self._give_to(attachment, part)
            stream.give_on_from(part.to)
            if self._give_run is not None and attachment is stream.feed.sole and attachment.session.has_room:
                self._give_following(self._give_run, attachment, end)
        return True

    def _give_following(self, give_run: GiveRun, attachment: Attachment, end: int) -> None:
        """Gives the chunks that follow the one that was just given to the queue's only attachment, as far as they are
        kept here. It ends where `_give_recent`, with one chunk after the other, would end; that is twice the work. A
        queue with an ack timeout has no `sole`, and no messages without a lease."""
        stream, budget, get = self._stream, self._budget, self._recent.get
        key_id, first = stream.key_id, stream.next
        end = min(end, first + min(budget.messages, stream.messages_allowed))
        last = min(end, first + attachment.window_messages - attachment.messages)
        body_bytes = attachment.window_bytes - attachment.body_bytes
        rows, chunk_bytes = budget.rows, budget.chunk_bytes
        parts: list[ChunkPart] = []
        offset = first
        while offset < last and body_bytes > 0 and rows > 0 and chunk_bytes > 0:
            part = get(key_id, offset)
            if part is None or part.to > last or has_expired(part.expires_ms, self._expiry_clock_ms):
                break
            if part.body_bytes > body_bytes and part.to - part.low > 1:
                break
            parts.append(part)
            offset = part.to
            body_bytes -= part.body_bytes
            rows -= 1
            chunk_bytes -= len(part.chunk) + PARCEL_BYTES_MAX
        if not parts:
            return
        given = give_run(stream, attachment, parts)
        if given < len(parts):
            del parts[given:]
        if parts:
            to = parts[-1].to
            stream.give(first, to, sum([part.body_bytes for part in parts]), attachment, 0)
            stream.give_on_from(to)
            budget.spend_run(parts)

    def give_lowest(self) -> None:
        """Gives only the lowest message, as the stream has as many done ranges as are allowed. Its ack moves the cursor
        and makes no new range; messages above it wait."""
        stream = self._stream
        again = stream.returned[0] if stream.returned else None
        first, to = again[:2] if again is not None else (stream.next, stream.end or self._key.head)
        if stream.waits_below(first):
            return
        given = to  # This holds if none of it is kept any more.
        for found in self._undone(first, to):
            if has_expired(found.stored.header.expires_ms, self._expiry_clock_ms):
                self._pass_run(found, found.to)
                return
            given = self._give_part(found, self._times(found) if again is None else again.times, 1)
            break
        if not given:
            return
        if again is None:
            stream.give_on_from(given)
        else:
            stream.give_again_from(given)

    def count_reading(self) -> None:
        """Takes what was read of the log from the budget."""
        self._budget.rows -= self._rows.cost
        self._rows.cost = 0

    def _give_found(self, found: Undone, times: int) -> int:
        """Gives it to one attachment, or in parts to several, as their windows have room. `times` 0: the stream knows
        what was delivered before. Returns where the messages given end; 0: nothing was given."""
        stream, given = self._stream, 0
        low, to, stored = found
        while low < to:
            end = stream.marked if not times and low < stream.marked < to else to
            some = found if low == found.low and end == to else Undone(low, end, stored)
            low = self._give_part(some, times or self._times(some), stream.messages_allowed)
            if not low:
                break
            given = low
        return given

    def _give_part(self, found: Undone, times: int, allowed: int) -> int:
        """Gives up to `allowed` messages. Returns where they end; 0: nothing was given. The cost of reading up to here
        counts only after a part is given, so that every turn makes progress."""
        budget = self._budget
        if budget.spent or allowed <= 0:
            return 0
        header = found.stored.header
        attachment = self._pick(parcel_bytes(found.stored.chunk, self._stream.key))
        if attachment is None:
            return 0
        room = attachment.room_for(header.messages, header.body_bytes)
        part = self._part(found, min(budget.messages, allowed, room), times)
        if part.first == part.low and part.to == found.stored.end and not times:
            self._recent.keep(self._stream.key_id, part)
        if not self._fits(attachment, part):
            return 0
        self._give_to(attachment, part)
        self.count_reading()
        return part.to

    def _fits(self, attachment: Attachment, part: ChunkPart) -> bool:
        """Returns whether the attachment may get a part of this size now. If not, its session waits until it may."""
        session, stream = attachment.session, self._stream
        if not self._registry.shares.line.is_too_large(session, parcel_bytes(part.chunk, part.key)):
            return True
        self._budget.spend(part)
        session.turned_away.add_large(stream.feed, stream.key_id, stream.lowest)
        session.wait_for_room()
        return False

    def _give_to(self, attachment: Attachment, part: ChunkPart) -> None:
        self._budget.spend(part)
        lease = self._lease_of(attachment)
        self._stream.give(part.low, part.to, part.body_bytes, attachment, part.times, lease)
        if lease is not None:
            lease.take(self._stream, part.to - part.low)
        self._give(self._stream, attachment, part)

    def _part(self, found: Undone, messages_max: int, times: int) -> ChunkPart:
        """Returns a part of up to `messages_max` messages: a pull for n messages takes n, whatever the chunk holds."""
        low, to, stored = found
        to = min(to, low + messages_max)
        header = stored.header
        size = _share(header.body_bytes, to - low, header.messages)
        if to - low < header.messages:
            stored = self._opened.same(self._stream.key_id, stored)
        first, chunk = self._rows.chunk_for(stored, low, to)
        if stored.is_open:
            self._opened.keep(self._stream.key_id, stored)
        return ChunkPart(self._stream.key, first, low, to, size, header.time_ms, chunk, times, header.expires_ms)

    def _times(self, found: Undone) -> int:
        return 1 if found.low < self._stream.marked else 0

    def _undone(self, low: int, end: int) -> Iterator[Undone]:
        """Yields what is not done in low <= o < end, chunk by chunk."""
        return undone(self._rows, max(low, self._key.low), end, self._stream.done)


def _share(body_bytes: int, messages: int, of_messages: int) -> int:
    """Returns the bytes of a part, by its share of the messages: windows need no exact figure."""
    return body_bytes if messages == of_messages else body_bytes * messages // of_messages
