"""The pump comes to rest, and no queue falls silent, whatever its consumers do beside others that keep the share full.

What a queue has next is large or small, comes back, waits for acks at the bound of done ranges; limits are small, so
that a few streams are more than a turn looks at."""

from __future__ import annotations

from random import Random

import pytest

from shoal_slice_node.core.dispatch.served import silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from tests.fuzz.small_limits import patched

from .core_driver import bind, declare, publish
from .large_readers import LARGE, crowded, rest, takes

QUEUE = "work"
BODIES = (LARGE, b"x", bytes(3_000), bytes(20_000))
LIMITS = (
    {"PUMP_TURN_LOOKS": 2, "DONE_RANGES_MAX": 2, "LOOKS_PER_LARGE_NEXT": 1},
    {"PUMP_TURN_LOOKS": 8, "DONE_RANGES_MAX": 2},
    {"PUMP_TURN_LOOKS": 4, "PUMP_TURN_ROWS": 2, "DONE_RANGES_MAX": 3},
    {"PUMP_TURN_LOOKS": 2, "LOG_BYTES_PER_COST": 30},
    {"NEWEST_LOOKED_AT_MAX": 1, "FREED_STREAMS_MAX": 1},
    {"NEWEST_LOOKED_AT_MAX": 1, "LEFT_OUT_KEPT_MAX": 1, "OUT_OF_LINE_LOOKS_MAX": 1},
)


class Workers:
    """Three sessions that may consume one queue."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.core, self.readers = crowded()
        self.keys = [f"k{number}" for number in range(random.choice((2, 4, 10)))]
        self.core.change(declare(QUEUE), bind(QUEUE, *self.keys))
        self.sessions = [self.core.session(1 << 20, f"c{number % 2}") for number in range(3)]
        self.unacked: dict[Session, list[tuple[str, int, int]]] = {session: [] for session in self.sessions}
        for session in self.sessions[:2]:
            self._attach(session)

    def _attach(self, session: Session) -> None:
        self.core.attach(session, QUEUE, messages=self.random.choice((1, 2, 100)))

    def publish(self) -> None:
        self.core.change(publish(self.random.choice(self.keys), self.random.choice(BODIES)))

    def take(self) -> None:
        session = self.random.choice(self.sessions)
        taken = self.core.dispatcher.take(session, 1 << 20)
        self.core.dispatcher.sent(session, taken.cost_bytes)
        self.unacked[session] += [(one.key.decode(), one.low, one.to) for one in taken.deliveries]

    def ack(self) -> None:
        session = self.random.choice(self.sessions)
        if session.attachments:
            for named in self.unacked[session]:
                if self.random.random() < 0.6:
                    self.core.ack(session, *named)
            self.unacked[session] = []

    def others_read(self) -> None:
        takes(self.core, self.random.choice(self.readers))

    def come_or_go(self) -> None:
        session = self.random.choice(self.sessions)
        if not session.attachments:
            self._attach(session)
        elif sum(bool(one.attachments) for one in self.sessions) > 1:
            self.core.dispatcher.detach(session, 1)
            self.unacked[session] = []

    def turns(self) -> None:
        """Some, so that the next step meets them under way, and another kind of work is next."""
        self.core.dispatcher._pump._next_kind = self.random.randrange(len(self.core.dispatcher._pump._kinds))
        for _ in range(self.random.randrange(6)):
            self.core.dispatcher.turn()

    def step(self) -> None:
        steps = (self.publish, self.publish, self.publish, self.take, self.ack, self.others_read, self.come_or_go)
        self.random.choice((*steps, self.turns))()


@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: "-".join(map(str, limits.values())))
def test_the_pump_rests_and_nothing_is_silent(limits: dict[str, int]) -> None:
    """With some streams that wait for acks, and some that have a large chunk next, two kinds of turns undid each
    other's count of looks in vain, without end."""
    for seed in (*range(8), 13, 110, 1300):
        with patched(limits):
            workers = Workers(Random(seed))
            core = workers.core
            for _ in range(60):
                workers.step()
                if workers.random.random() < 0.3:
                    rest(core)
                    assert not list(silent_streams(core.dispatcher, core.dispatcher.feeds.values()))
            rest(core)
