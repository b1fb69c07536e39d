"""Keeps the answer of `/metrics`: rendered on request and given again for a while, so that many requests cost as one.

Rendering takes milliseconds, in which the process does nothing else. Not here: what the metrics are (each server).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from shoal_runtime.http.limits import METRICS_KEPT_S


class KeptText:
    """Keeps what `render` returned. `render` runs on the event loop, at most once in METRICS_KEPT_S."""

    def __init__(self, render: Callable[[], bytes], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._render = render
        self._clock_s = clock_s
        self._kept: tuple[float, bytes] | None = None

    def now(self) -> bytes:
        """Returns a text that was rendered less than METRICS_KEPT_S ago."""
        now_s = self._clock_s()
        if self._kept is None or now_s - self._kept[0] >= METRICS_KEPT_S:
            self._kept = (now_s, self._render())
        return self._kept[1]
