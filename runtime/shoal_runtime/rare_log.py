"""Writes a log that bad input cannot fill: each kind has a bounded rate of lines; the next line counts the rest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


class RareLog:
    """Bounds one kind of line that peers can cause: `lines_per_s` on average, and not more than one at a time."""

    def __init__(
        self, log: logging.Logger, lines_per_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._pause_s = 1 / lines_per_s
        self._clock = clock
        self._next = 0.0
        self._left_out = 0

    def warning(self, text: str, *values: object) -> None:
        """Writes the line, or counts it as left out. `text` has `%s` for `values`, as in logging."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return
        if self._left_out:
            text, values = text + " (%d more such lines were left out)", (*values, self._left_out)
        self._next, self._left_out = now + self._pause_s, 0
        self._log.warning(text, *values)
