"""Computes capped, jittered pauses between attempts."""

from __future__ import annotations

from collections.abc import Callable

from shoal.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S, READABLE_S


class Backoff:
    """Doubles its base from `first_s` to `max_s`: BACKOFF_FIRST_S and BACKOFF_MAX_S if they are not given. Each pause
    is 50-100% of it, so that clients spread out. `random`: returns a number, 0 <= number < 1, as `random.random`
    does."""

    __slots__ = ("_distrusted", "_first_s", "_max_s", "_next_s", "_random")

    def __init__(self, random: Callable[[], float], first_s: float | None = None, max_s: float | None = None) -> None:
        self._first_s = self._next_s = BACKOFF_FIRST_S if first_s is None else first_s
        self._max_s = BACKOFF_MAX_S if max_s is None else max_s
        self._random = random
        self._distrusted = False
        """True after an attempt that broke on what it brought, until one has lasted for READABLE_S."""

    def pause_s(self) -> float:
        """Returns how long to wait before the next attempt, in seconds."""
        pause = self._next_s * (0.5 + 0.5 * self._random())
        self._next_s = min(self._next_s * 2, self._max_s)
        return pause

    def distrust(self) -> bool:
        """Notes that what an attempt brought could not be read: the next may begin well, and break in the same way. So
        it counts as one that worked only once it has lasted. Returns whether that is known already."""
        before, self._distrusted = self._distrusted, True
        return before

    def reset(self, lasted_s: float = 0.0) -> None:
        """Starts again from the first pause: the attempt works. `lasted_s`: for how long it has done so."""
        if not self._distrusted or lasted_s >= READABLE_S:
            self._distrusted = False
            self._next_s = self._first_s
