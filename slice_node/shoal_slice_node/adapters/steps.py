"""Measures how long steps of work block the event loop: the longest step of the last minute, for figures and alerts.

The minute has two halves of 30 s, so the figure always covers the last 30 to 60 s.
"""

from __future__ import annotations

import time

from shoal_slice_node.adapters.limits import STEPS_WATCHED_S


class StepWatch:
    """Keeps the longest step. `done` is called at the end of each step."""

    __slots__ = ("_before_s", "_half_ends_s", "_now_s")

    def __init__(self) -> None:
        self._now_s = 0.0
        self._before_s = 0.0
        self._half_ends_s = 0.0

    def done(self, began: float) -> None:
        """Records a step that began at `began`, a value of time.perf_counter(), and ends now."""
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
