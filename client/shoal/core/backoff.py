"""Computes capped, jittered pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

from shoal.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S


class Backoff:
    """Doubles its base from BACKOFF_FIRST_S to BACKOFF_MAX_S. Each pause is 50-100% of it, so that clients spread
    out. `random`: returns a number, 0 <= number < 1, as `random.random` does."""

    __slots__ = ("_next_s", "_random")

    def __init__(self, random: Callable[[], float]) -> None:
        self._next_s = BACKOFF_FIRST_S
        self._random = random

    def pause_s(self) -> float:
        """Returns how long to wait before the next attempt, in seconds."""
        pause = self._next_s * (0.5 + 0.5 * self._random())
        self._next_s = min(self._next_s * 2, BACKOFF_MAX_S)
        return pause

    def reset(self) -> None:
        """Starts again from BACKOFF_FIRST_S: the attempt worked."""
        self._next_s = BACKOFF_FIRST_S
