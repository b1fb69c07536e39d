"""How long steps of work hold the event loop: the longest of the last minute, for figures and alerts.

Two halves of half a minute each: a look always sees between 30 and 60 s.
"""

from __future__ import annotations

import time

from shoal_slice_node.adapters.limits import STEPS_WATCHED_S


class StepWatch:
    """`done` at the end of each step."""

    __slots__ = ("_before_s", "_half_ends_s", "_now_s")

    def __init__(self) -> None:
        self._now_s = 0.0
        self._before_s = 0.0
        self._half_ends_s = 0.0

    def done(self, began: float) -> None:
        """A step that began at this time.perf_counter() ends now."""
        now = time.perf_counter()
        if now > self._half_ends_s:
            self._turn_over(now)
        if now - began > self._now_s:
            self._now_s = now - began

    @property
    def longest_s(self) -> float:
        if time.perf_counter() > self._half_ends_s:
            self._turn_over(time.perf_counter())
        return max(self._now_s, self._before_s)

    def _turn_over(self, now: float) -> None:
        half_s = STEPS_WATCHED_S / 2
        self._before_s = self._now_s if now < self._half_ends_s + half_s else 0.0
        self._now_s = 0.0
        self._half_ends_s = now + half_s
