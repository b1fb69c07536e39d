"""Measures latencies and stalls of one run."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence


class Timings:
    """Keeps the seconds to each answer. `stall_s`: the longest time without any answer while something was
    outstanding."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._last_s = 0.0
        self._outstanding = 0
        self._counting = False
        self.stall_s = 0.0

    def begin(self) -> None:
        """Starts counting. An answer that comes from now on counts, even if its request was sent before."""
        self._counting = True
        self._last_s = time.perf_counter()

    def end(self) -> None:
        self._counting = False

    def sent(self) -> float:
        """Counts a request as sent. Returns the time now, to pass to `answered`."""
        now = time.perf_counter()
        if self._outstanding == 0:
            self._last_s = now
        self._outstanding += 1
        return now

    def answered(self, sent_s: float) -> bool:
        """Counts an answer. Returns whether it is among the figures."""
        now = time.perf_counter()
        self._outstanding -= 1
        if self._counting:
            self._seconds.append(now - sent_s)
            self.stall_s = max(self.stall_s, now - self._last_s)
        self._last_s = now
        return self._counting

    def __len__(self) -> int:
        return len(self._seconds)

    def percentile_ms(self, percent: float) -> float:
        """Returns the percentile by nearest rank; 0 if nothing was counted."""
        return percentile(self._seconds, percent) * 1000


def percentile(values: array[float], percent: float) -> float:
    """Returns the percentile by nearest rank; 0 if there are no values."""
    return percentile_of(values, percent)


def percentile_of(values: Sequence[float], percent: float) -> float:
    """Returns the same as `percentile`, of any sequence."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
