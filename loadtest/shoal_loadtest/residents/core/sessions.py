"""How long residents stay, and when what happens at a rate is due.

Session lengths S are log-uniform: as many between 15 s and 30 s as between 6 h and 12 h. Of those online at one moment
long sessions are seen more often, by their length: then S is uniform, and what is left of it is a uniform share of S.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Final

from shoal_loadtest.residents.core.chance import Chance
from shoal_loadtest.residents.limits import SESSION_S_MAX, SESSION_S_MIN

SESSION_S_MEAN: Final = (SESSION_S_MAX - SESSION_S_MIN) / log(SESSION_S_MAX / SESSION_S_MIN)


def session_s(chance: Chance) -> float:
    """Of one who logs in."""
    return SESSION_S_MIN * exp(log(SESSION_S_MAX / SESSION_S_MIN) * chance.random())


def rest_s(chance: Chance) -> float:
    """What is left for one who is found online."""
    return chance.random() * (SESSION_S_MIN + (SESSION_S_MAX - SESSION_S_MIN) * chance.random())


class Arrivals:
    """Independent events at a rate (Poisson): exponential pauses."""

    def __init__(self, chance: Chance, now_s: float) -> None:
        self._chance = chance
        self._last_s = now_s
        self._pause = -log(1 - chance.random())

    def due(self, now_s: float, rate_per_s: float) -> Iterator[float]:
        """The moments since the last call, at this rate."""
        while rate_per_s > 0 and (at_s := self._last_s + self._pause / rate_per_s) <= now_s:
            self._last_s = at_s
            self._pause = -log(1 - self._chance.random())
            yield at_s
        if now_s > self._last_s:
            self._pause = max(0.0, self._pause - (now_s - self._last_s) * rate_per_s)
            self._last_s = now_s
