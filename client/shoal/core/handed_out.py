"""Keeps what a program was handed out and has neither acked nor given back, where repeats are not dropped. Pure.

A program may let a message time out, and it need not come again here. So what was handed out longer ago than the ack
timeout of its queue is passed over, and of a key and queue only the HANDED_OUT_RANGES_MAX ranges with the highest
offsets are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from shoal.limits import HANDED_OUT_RANGES_MAX, SEEN_ENTRIES_MAX


class _Range(NamedTuple):
    first: int
    end: int
    at_s: float
    """When the last of them was handed out."""


def _end(one: _Range) -> int:
    return one.end


def _first(one: _Range) -> int:
    return one.first


class HandedOut:
    """Keeps offsets by key and handle. Times are those of a clock that only grows, in seconds."""

    def __init__(self) -> None:
        self._out: OrderedDict[tuple[bytes, int], list[_Range]] = OrderedDict()
        """Ranges that have no offset in common, in ascending order."""

    def __bool__(self) -> bool:
        return bool(self._out)

    def add(self, key: bytes, first: int, end: int, handles: Iterable[int], now_s: float) -> None:
        """Notes that offsets first <= offset < end are handed out."""
        for handle in handles:
            self.done(key, first, end, (handle,))  # It may come a second time.
            out = self._out.setdefault((key, handle), [])
            place = bisect_left(out, first, key=_first)
            if place and out[place - 1].end == first:
                out[place - 1] = _Range(out[place - 1].first, end, now_s)
            else:
                out.insert(place, _Range(first, end, now_s))
            if len(out) > HANDED_OUT_RANGES_MAX:
                del out[0]
        while len(self._out) > SEEN_ENTRIES_MAX:
            self._out.popitem(last=False)

    def done(self, key: bytes, first: int, end: int, handles: Iterable[int]) -> None:
        """Notes that offsets first <= offset < end are acked, or given back."""
        for handle in handles:
            out = self._out.get((key, handle))
            if out is None:
                continue
            begin, stop = bisect_right(out, first, key=_end), bisect_left(out, end, key=_first)
            if begin < stop:
                low, high = out[begin], out[stop - 1]
                left = [low._replace(end=first)] if low.first < first else []
                out[begin:stop] = [*left, high._replace(first=end)] if high.end > end else left
            if not out:
                del self._out[key, handle]

    def leave(self, handles: Sequence[int]) -> None:
        """Forgets handles: their acks have no effect any more."""
        gone = set(handles)
        for pair in [pair for pair in self._out if pair[1] in gone]:
            del self._out[pair]

    def clear(self) -> None:
        """Forgets all: it comes again."""
        self._out.clear()

    def unsettled(self, timeouts_s: Mapping[int, float], now_s: float) -> Iterator[int]:
        """Yields how many messages are out, for each key and handle that has any: the caller adds them up, or looks
        whether there are some. `timeouts_s`: the ack timeouts of queues that have one, by handle."""
        for (_, handle), out in self._out.items():
            since_s = now_s - timeouts_s.get(handle, inf)
            count = sum(one.end - one.first for one in out if one.at_s > since_s)
            if count:
                yield count
