"""Sorts the keys of a changing dict: a few sorted runs, merged as they grow (a small log-structured merge in memory).

Belongs here: the order. Not here: values, layers (delta_rows). A run has at most RUN_KEYS_MAX keys, so that neither a
merge nor a free makes a pause; a look-up bisects every run.
Method: O'Neil et al., The Log-Structured Merge-Tree, Acta Informatica 33 (1996), in its simplest form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from heapq import merge

from shoal_slice_node.core.limits import RECENT_KEYS_MAX, RUN_KEYS_MAX


class KeyOrder:
    """Keeps keys in order. A key may be noted twice, and may have vanished since: `between` asks `live`."""

    __slots__ = ("_recent", "_runs", "noted")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._runs: list[list[bytes]] = [sorted(keys)]
        self._recent: list[bytes] = []
        """Keys that are not sorted yet."""
        self.noted = len(self._runs[0])

    def note(self, key: bytes) -> None:
        """Notes a key that came."""
        self._recent.append(key)
        if len(self._recent) >= RECENT_KEYS_MAX:
            self._settle()

    def __len__(self) -> int:
        return self.noted + len(self._recent)

    def between(self, start: bytes, prefix: bytes, live: Container[bytes]) -> Iterator[bytes]:
        """Yields the keys >= start that begin with prefix and are in `live`, ascending, each once."""
        self._settle()
        previous = None
        for key in merge(*(_slice(run, start, prefix) for run in self._runs)):
            if key != previous and key in live:
                yield key
            previous = key

    def _settle(self) -> None:
        if not self._recent:
            return
        runs = self._runs
        run = sorted(self._recent)
        self.noted += len(run)
        self._recent.clear()
        while runs and len(runs[-1]) <= 2 * len(run) and len(runs[-1]) + len(run) <= RUN_KEYS_MAX:
            run = runs.pop() + run
            run.sort()
        runs.append(run)


def _slice(run: list[bytes], start: bytes, prefix: bytes) -> Iterator[bytes]:
    for place in range(bisect_left(run, start), len(run)):  # An `islice` would pass all keys before it, one by one.
        key = run[place]
        if not key.startswith(prefix):
            return
        yield key
