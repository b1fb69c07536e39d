"""Computes capped, jittered pauses between attempts. Pure."""

from __future__ import annotations

import random

from shoal.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S


class Backoff:
    """Doubles its base from BACKOFF_FIRST_S to BACKOFF_MAX_S. Each pause is 50-100% of it, so that clients spread
    out."""

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = BACKOFF_FIRST_S

    def pause_s(self) -> float:
        pause = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(self._next_s * 2, BACKOFF_MAX_S)
        return pause

    def reset(self) -> None:
        """Starts again from BACKOFF_FIRST_S: the attempt worked."""
        self._next_s = BACKOFF_FIRST_S
