"""Draws how long residents stay, and the moments at which events of a rate are due.

Session lengths S are log-uniform: as many between 15 s and 30 s as between 6 h and 12 h. Among the residents online at
one moment, long sessions are more frequent, in proportion to their length: there S is uniform, and the time left is a
uniform share of S.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Final

from shoal_loadtest.residents.core.chance import Chance
from shoal_loadtest.residents.limits import SESSION_S_MAX, SESSION_S_MIN

SESSION_S_MEAN: Final = (SESSION_S_MAX - SESSION_S_MIN) / log(SESSION_S_MAX / SESSION_S_MIN)


def session_s(chance: Chance) -> float:
    """Returns the session length of a resident that logs in."""
    return SESSION_S_MIN * exp(log(SESSION_S_MAX / SESSION_S_MIN) * chance.random())


def rest_s(chance: Chance) -> float:
    """Returns the time left for a resident that is found online."""
    return chance.random() * (SESSION_S_MIN + (SESSION_S_MAX - SESSION_S_MIN) * chance.random())


class Arrivals:
    """Draws independent events at a rate (Poisson), with exponential pauses."""

    def __init__(self, chance: Chance, now_s: float) -> None:
        self._chance = chance
        self._last_s = now_s
        self._pause = -log(1 - chance.random())

    def due(self, now_s: float, rate_per_s: float) -> Iterator[float]:
        """Yields the moments of events since the last call, at this rate."""
        while rate_per_s > 0 and (at_s := self._last_s + self._pause / rate_per_s) <= now_s:
            self._last_s = at_s
            self._pause = -log(1 - self._chance.random())
            yield at_s
        if now_s > self._last_s:
            self._pause = max(0.0, self._pause - (now_s - self._last_s) * rate_per_s)
            self._last_s = now_s
