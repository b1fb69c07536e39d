"""Computes capped, jittered pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

from shoal.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S


class Backoff:
    """Doubles its base from `first_s` to `max_s`: BACKOFF_FIRST_S and BACKOFF_MAX_S if they are not given. Each pause
    is 50-100% of it, so that clients spread out. `random`: returns a number, 0 <= number < 1, as `random.random`
    does."""

    __slots__ = ("_first_s", "_max_s", "_next_s", "_random")

    def __init__(self, random: Callable[[], float], first_s: float | None = None, max_s: float | None = None) -> None:
        self._first_s = self._next_s = BACKOFF_FIRST_S if first_s is None else first_s
        self._max_s = BACKOFF_MAX_S if max_s is None else max_s
        self._random = random

    def pause_s(self) -> float:
        """Returns how long to wait before the next attempt, in seconds."""
        pause = self._next_s * (0.5 + 0.5 * self._random())
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause

    def reset(self) -> None:
        """Starts again from the first pause: the attempt worked."""
        self._next_s = self._first_s
