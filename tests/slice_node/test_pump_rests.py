"""The pump comes to rest, and no queue falls silent, whatever its consumers do beside others that keep the share full.

What a queue has next is large or small, comes back, waits for acks at the bound of done ranges; limits are small, so
that a few streams are more than a turn looks at."""

from __future__ import annotations

from random import Random

import pytest

from shoal_slice_node.core.dispatch.served import silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, publish
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
    {"PUMP_TURN_LOOKS": 3, "DONE_RANGES_MAX": 1, "LOOKS_PER_LARGE_NEXT": 1},
    {"PUMP_TURN_LOOKS": 2, "DONE_RANGES_MAX": 1, "LOOKS_PER_LARGE_NEXT": 1},
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
    other's count of looks in vain, without end; or turns for large chunks ended before they came to one."""
    for seed in (*range(8), 13, 110, 254, 329, 388, 1300):
        with patched(limits):
            workers = Workers(Random(seed))
            core = workers.core
            for _ in range(60):
                workers.step()
                if workers.random.random() < 0.3:
                    rest(core)
                assert not list(silent_streams(core.dispatcher, core.dispatcher.feeds.values()))
            rest(core)


def test_a_queue_that_a_session_turned_away_is_not_silent_while_that_session_has_its_turn_soon() -> None:
    """A turn for large chunks that ends early leaves its session in the queue's line. The check took it for a queue
    that nothing serves (the fuzzer found it, with tiny limits)."""
    core = CoreDriver()
    core.change(declare(QUEUE), bind(QUEUE, "k"))
    session, other = core.session(), core.session()
    for one in (session, other):
        core.attach(one, QUEUE, messages=1)
    core.pump()
    core.change(publish("k", b"x"), publish("k", b"y"), publish("k", b"z"))
    core.pump()
    for one in (session, other):
        (taken,) = core.dispatcher.take(one, 1 << 20).deliveries
        core.ack(one, "k", taken.low, taken.to)
    registry = core.dispatcher.registry
    (feed,) = core.dispatcher.feeds.values()
    registry.ready.clear()
    registry.roomy.clear()

    def silent() -> list[str]:
        return [one.reason for one in silent_streams(core.dispatcher, [feed])]

    assert silent() == ["it lags and its feed is not in line"]
    session.turned_away.expect_large(feed)
    assert silent() == ["it lags and its feed is not in line"], "it has no turn"
    registry.roomy[session] = None
    assert not silent()
    registry.roomy.clear()
    core.dispatcher.shares.line.wait(session)
    assert not silent()
