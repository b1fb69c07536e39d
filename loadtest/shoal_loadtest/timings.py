"""Latencies and stalls of one run."""

from __future__ import annotations

import time
from array import array


class Timings:
    """Seconds per answer. `stall_s`: the longest time without any answer while something was outstanding."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._last_s = 0.0
        self._outstanding = 0
        self._counting = False
        self.stall_s = 0.0

    def begin(self) -> None:
        """Counts from now; what is under way stays out of the latencies' start but counts when it ends."""
        self._counting = True
        self._last_s = time.perf_counter()

    def end(self) -> None:
        self._counting = False

    def sent(self) -> float:
        """The time now, to hand back to `answered`."""
        now = time.perf_counter()
        if self._outstanding == 0:
            self._last_s = now
        self._outstanding += 1
        return now

    def answered(self, sent_s: float) -> bool:
        """True if it counts."""
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
        """Nearest rank; 0 if nothing was counted."""
        return percentile(self._seconds, percent) * 1000


def percentile(values: array[float], percent: float) -> float:
    """Nearest rank; 0 of nothing."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
