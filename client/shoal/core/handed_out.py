"""Keeps what a program was handed out and has neither acked nor given back, where repeats are not dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.offset_ranges import Ranges, count, with_range, without_range


class HandedOut:
    """Keeps offsets by key and handle."""

    def __init__(self) -> None:
        self._out: dict[tuple[bytes, int], Ranges] = {}

    def __bool__(self) -> bool:
        return bool(self._out)

    def add(self, key: bytes, first: int, end: int, handles: Iterable[int]) -> None:
        """Notes that offsets first <= offset < end are handed out."""
        for handle in handles:
            self._out[key, handle] = with_range(self._out.get((key, handle), ()), first, end)[0]

    def done(self, key: bytes, first: int, end: int, handles: Iterable[int]) -> None:
        """Notes that offsets first <= offset < end are acked, or given back."""
        for handle in handles:
            out = self._out.pop((key, handle), ())
            if left := without_range(out, first, end):
                self._out[key, handle] = left

    def leave(self, handles: Sequence[int]) -> None:
        """Forgets handles: their acks have no effect any more."""
        gone = set(handles)
        for pair in [pair for pair in self._out if pair[1] in gone]:
            del self._out[pair]

    def clear(self) -> None:
        """Forgets all: it comes again."""
        self._out.clear()

    def unsettled(self) -> Iterable[int]:
        """Yields numbers of messages, each above 0; their sum is the number of all."""
        return map(count, self._out.values())
