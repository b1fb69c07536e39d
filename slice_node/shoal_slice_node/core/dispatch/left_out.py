"""Keeps streams of a feed that a look left out: it ended before it came to them, as nobody who consumes the feed had
room for what is next of another stream. What is next of these may come out of turn (out_of_turn.py).

First each stream is looked at, while somebody has any room. A look asks a few consumers for room for what is next; if
none of these has it, a stream with something new is kept by how much that takes. Then all consumers are asked, a few at
a time, for what takes the least: who has no room for that has none for the others. So a round over all is enough for
many streams; another one begins only after something was given, or something else is kept.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, NamedTuple

from shoal_slice_node.core.dispatch.out_of_line import finds_any, pick_any, pick_likely
from shoal_slice_node.core.limits import (
    LEFT_OUT_KEPT_MAX,
    NEWEST_LOOKED_AT_MAX,
    OUT_OF_LINE_LOOKS_MAX,
    PARCEL_OVERHEAD_BYTES,
)

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.feeds import Feed
    from shoal_slice_node.core.dispatch.room_line import RoomLine
    from shoal_slice_node.core.dispatch.streams import Stream


class Look(NamedTuple):
    """Says which stream is to be looked at. `is_new`: it is kept if it misses room. `missed_bytes`: so much it missed
    at the look before; 0: there was none."""

    stream: Stream
    is_new: bool
    missed_bytes: int


class LeftOut:
    """Keeps such streams of one feed."""

    __slots__ = (
        "_asks_for_kept",
        "_consumers_left",
        "_feed",
        "_kept",
        "_line",
        "_missed_bytes",
        "_new",
        "_numbers",
        "_old",
    )

    def __init__(self, feed: Feed, line: RoomLine) -> None:
        self._feed = feed
        self._line = line
        self._new: list[Stream] = []
        """Those with something new, the next one last."""
        self._old: list[Stream] = []
        """A few more, which are looked at behind them."""
        self._kept: list[tuple[int, int, Stream]] = []
        """A heap of those that were looked at: what is next takes so much, and nobody was found who has room for it."""
        self._numbers = count()
        self._asks_for_kept = False
        self._consumers_left = 0
        """So many are still to be asked for what takes the least of those kept (`_asks_for_kept`), or any room."""
        self._missed_bytes = 0
        """What the look under way found no room for; 0: it found some for all that it asked for."""

    def __bool__(self) -> bool:
        """Returns whether there is more to look at."""
        return bool(self._new or self._old or self._kept)

    def note_all(self) -> None:
        """Notes all streams that lag, as if all were new."""
        self._new = list(reversed(self._feed.lagging.values()))
        self._old.clear()
        self._kept.clear()
        self._ask_all_anew()

    def note_newest(self, new: int) -> None:
        """Notes those that lag since lately, `new` of them, which are next, and a few more."""
        lagging = self._feed.lagging
        if len(self._new) > len(lagging):
            self.note_all()
            return
        newest = list(islice(reversed(lagging.values()), new + NEWEST_LOOKED_AT_MAX))
        self._new += newest[:new][::-1]
        self._old = newest[new:][::-1]
        if not self._asks_for_kept:
            self._ask_all_anew()

    def finds_consumer(self) -> bool:
        """Returns whether one of a few consumers has room for what is next. If not, others are asked next; once all
        were, nothing is left that they were asked for."""
        asks_for_kept = not (self._new or self._old) or len(self._kept) >= LEFT_OUT_KEPT_MAX
        if asks_for_kept is not self._asks_for_kept:
            self._asks_for_kept = asks_for_kept
            self._ask_all_anew()
        if finds_any(self._feed, self._kept[0][0] if asks_for_kept else PARCEL_OVERHEAD_BYTES):
            return True
        self._consumers_left -= OUT_OF_LINE_LOOKS_MAX
        if self._consumers_left <= 0:
            self._kept.clear()
            if not asks_for_kept:
                self._new.clear()
                self._old.clear()
        return False

    def take(self) -> Look:
        """Takes out what is to be looked at now; somebody was found who has room. Unless the stream has caught up,
        `looked_at` must follow."""
        self._missed_bytes = 0
        if self._asks_for_kept:
            missed_bytes, _, stream = heappop(self._kept)
            return Look(stream, True, missed_bytes)
        return Look(self._new.pop(), True, 0) if self._new else Look(self._old.pop(), False, 0)

    def pick(self, cost_bytes: int, more: int = 0, more_bytes: int = 0) -> Attachment | None:
        """Does as `pick_any`, for the look under way."""
        feed = self._feed
        if self._line.must_wait(cost_bytes):
            self._missed_bytes = 0
            return feed.pick(cost_bytes, more, more_bytes)
        if self._kept and cost_bytes > self._kept[0][0]:
            found = pick_likely(feed, cost_bytes, more, more_bytes)  # All are asked for what takes less, first.
        else:
            found = pick_any(feed, cost_bytes, more, more_bytes)
        self._missed_bytes = cost_bytes if found is None else 0
        return found

    def looked_at(self, look: Look, gave: bool) -> None:
        """Notes that a stream was looked at, and whether it was given something. It stays if more of it may be given:
        each time something was given then, or it misses something else."""
        stream = look.stream
        if gave:
            self._ask_all_anew()
        if not stream.lagging:
            return
        if gave and not self._missed_bytes:
            self._new.append(stream)
        elif self._missed_bytes and (gave or (look.is_new and self._missed_bytes != look.missed_bytes)):
            heappush(self._kept, (self._missed_bytes, next(self._numbers), stream))
            self._ask_all_anew()

    def _ask_all_anew(self) -> None:
        self._consumers_left = len(self._feed.attachments)
