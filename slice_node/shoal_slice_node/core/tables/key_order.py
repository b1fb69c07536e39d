"""Sorts the keys of a changing dict: a few sorted runs, merged as they grow (a small log-structured merge in memory).

Belongs here: the order. Not here: values, layers (delta_rows). A run has at most RUN_KEYS_MAX keys, so that neither a
merge nor a free makes a pause; a look-up bisects every run. Keys that vanished leave a run when a look-up has passed
many of them, and bit by bit while others come.
Method: O'Neil et al., The Log-Structured Merge-Tree, Acta Informatica 33 (1996), in its simplest form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from heapq import merge
from typing import Protocol

from shoal_slice_node.core.limits import DEAD_KEYS_MIN, RECENT_KEYS_MAX, RUN_KEYS_MAX


class Live(Container[bytes], Protocol):
    """Says which keys are there, and how many."""

    def __len__(self) -> int: ...


class KeyOrder:
    """Keeps keys in order. A key may be noted twice, and may have vanished since: `live` says which are there."""

    __slots__ = ("_purged", "_recent", "_runs", "noted")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._runs: list[list[bytes]] = [sorted(keys)]
        """Each is replaced as a whole: a look-up that is under way goes on with the one that it began with."""
        self._recent: list[bytes] = []
        """Keys that are not sorted yet."""
        self.noted = len(self._runs[0])
        self._purged = 0
        """How many runs were looked through for vanished keys."""

    def note(self, key: bytes, live: Live) -> None:
        """Notes a key that came."""
        self._recent.append(key)
        if len(self._recent) >= RECENT_KEYS_MAX:
            self._settle()
            if len(self) > 2 * len(live) + RECENT_KEYS_MAX:  # Mostly keys that came and went.
                self._purge(live)

    def __len__(self) -> int:
        return self.noted + len(self._recent)

    def between(self, start: bytes, prefix: bytes, live: Container[bytes]) -> Iterator[bytes]:
        """Yields the keys >= start that begin with prefix and are in `live`, ascending, each once."""
        self._settle()
        previous = None
        for key in merge(*(self._slice(run, start, prefix, live) for run in self._runs)):
            if key != previous and key in live:
                yield key
            previous = key

    def _slice(self, run: list[bytes], start: bytes, prefix: bytes, live: Container[bytes]) -> Iterator[bytes]:
        place = dead_from = bisect_left(run, start)
        while place < len(run):  # An `islice` would pass all keys before `start`, one by one.
            key = run[place]
            if not key.startswith(prefix):
                break
            if key in live:
                if place - dead_from >= DEAD_KEYS_MIN:
                    self._replace(run, run[:dead_from] + run[place:])
                yield key
                dead_from = place + 1
            place += 1
        if place - dead_from >= DEAD_KEYS_MIN:
            self._replace(run, run[:dead_from] + run[place:])

    def _replace(self, run: list[bytes], kept: list[bytes]) -> None:
        """Puts a run in the place of one, unless that was replaced or merged meanwhile."""
        for place, one in enumerate(self._runs):
            if one is run:
                self._runs[place] = kept
                self.noted -= len(run) - len(kept)
                return

    def _purge(self, live: Live) -> None:
        """Takes the vanished keys out of one run."""
        self._purged += 1
        run = self._runs[self._purged % len(self._runs)]
        self._replace(run, [key for key in run if key in live])

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
