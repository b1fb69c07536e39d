"""Holds what all parts of one generator work with, and what it has to report. There are no rules in here."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

import shoal
from shoal_loadtest.residents.core.chance import Chance
from shoal_loadtest.residents.core.talk import Talk
from shoal_loadtest.residents.core.town import Town
from shoal_loadtest.residents.core.windows import Faults, Windows
from shoal_loadtest.residents.limits import SAMPLES_PER_REPORT_MAX, SETTLE_POLL_S
from shoal_loadtest.residents.setting import Setting


def now_s() -> float:
    """Returns the time of the clock that everything here uses."""
    return time.monotonic()


async def until(true: Callable[[], bool]) -> None:
    """Waits until `true()`. It polls, where nothing signals; what is waited for here is nearly always true at once."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(SETTLE_POLL_S)


class Samples:
    """Keeps what happened since the last report. Latencies are not kept before the warm-up is over."""

    def __init__(self) -> None:
        self.measuring = False
        self.latencies_ms: dict[str, list[float]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.failures: list[tuple[str, str]] = []

    def took(self, name: str, since_s: float) -> None:
        """Notes that a call or a delivery that began at `since_s` is at its end."""
        if self.measuring and len(self.latencies_ms[name]) < SAMPLES_PER_REPORT_MAX:
            self.latencies_ms[name].append((now_s() - since_s) * 1000)

    def failed(self, name: str, error: Exception) -> None:
        if len(self.failures) < SAMPLES_PER_REPORT_MAX:
            self.failures.append((name, f"{type(error).__name__}: {error}"))

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Wraps a call: keeps its latency, or its failure, which is raised on."""
        since_s = now_s()
        try:
            yield
        except shoal.ShoalError as error:
            self.failed(name, error)
            raise
        self.took(name, since_s)

    def take(self) -> tuple[dict[str, list[float]], dict[str, int], list[tuple[str, str]]]:
        taken = dict(self.latencies_ms), dict(self.counts), self.failures
        self.latencies_ms, self.counts, self.failures = defaultdict(list), Counter(), []
        return taken


class State(IntEnum):
    """Names the states of a seat: away -> coming -> online -> leaving -> away; busy: online, and changing groups."""

    AWAY = 0
    COMING = 1
    ONLINE = 2
    BUSY = 3
    LEAVING = 4


@dataclass
class Scene:
    """Holds the parts of one generator. `watched` of `town.seats` are consumed when online (`is_watched`). `states`: by
    seat."""

    broker: shoal.Broker
    inbox: shoal.Inbox
    setting: Setting
    town: Town
    windows: Windows
    talk: Talk
    faults: Faults
    chance: Chance
    watched: int
    samples: Samples = field(default_factory=Samples)
    states: bytearray = field(init=False)
    online: int = 0
    detaching: set[int] = field(default_factory=set)
    """Residents that left and whose queues are not detached yet."""
    dropping: set[int] = field(default_factory=set)
    """Residents of `detaching` that dropped their queue: what still comes for them does not matter."""

    def __post_init__(self) -> None:
        self.states = bytearray(self.town.seats)

    def is_dropping(self, resident: int) -> bool:
        """Returns whether a resident is dropping its queue. `resident`: the number in a queue's name."""
        return resident // self.setting.generators in self.dropping

    def is_watched(self, seat: int) -> bool:
        # Crowds are neighbouring seats; each must have its share of the consumed ones.
        return (seat * self.watched) % self.town.seats < self.watched
