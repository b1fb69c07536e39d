"""Acks and nacks about very many stretches of one binding: each step settles, or looks at, a bounded number."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import acks_in_flight
from shoal_slice_node.core.dispatch import shares as dispatch_shares
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import ACKED_PER_STEP, PUMP_TURN_HANDLES
from shoal_slice_node.core.node.settling import take_acks, take_nacks
from shoal_slice_node.core.turns import Source

from .core_driver import acks, bind, configure, declare, publish
from .nacks_driver import NacksDriver

MESSAGES = 3_000
HALF = MESSAGES // 2
ALL = (1, MESSAGES + 1)
LOOKED_AT_MAX = 5 * ACKED_PER_STEP
"""Done ranges and stretches that rest, looked at in one step: about 1 ms."""

Ask = Callable[[Callable[[ShoalError | None], None]], None]


class Steps:
    """Counts in each step of a frame what was acked, what rests, and what was looked at."""

    def __init__(self, core: NacksDriver) -> None:
        self._core = core
        self.acked: list[int] = []
        self.looked_at: list[int] = []
        self.owed: list[int] = []
        self.error: ShoalError | None = None

    def take(self, ask: Ask, *sessions: Session) -> None:
        """Takes a frame to its end. `sessions`: whose stretches are counted."""
        unacked, turns = Stream.unacked, self._core.node.turns
        done: list[ShoalError | None] = []

        def counted(stream: Stream, first: int, to: int) -> list[tuple[int, int]]:
            resting = [one for one in stream.resting or () if one.first < to and first < one.to]
            done_ranges = stream.done.within(first, to) if stream.done else []
            self.looked_at[-1] += len(resting) + len(done_ranges)
            return unacked(stream, first, to)

        with patch.object(Stream, "unacked", counted):
            self._step(lambda: ask(done.append), sessions)
            while turns:
                self._step(turns.step, sessions)
        [self.error] = done

    def _step(self, step: Callable[[], object], sessions: tuple[Session, ...]) -> None:
        counters = self._core.state.counters
        self.looked_at.append(0)
        acked, owed = counters.acks, sum(session.owed for session in sessions)
        step()
        self.acked.append(counters.acks - acked)
        self.owed.append(owed - sum(session.owed for session in sessions))


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", *[b""] * MESSAGES))
    return core


def reader(core: NacksDriver, messages: int = MESSAGES) -> Session:
    session = core.session(window_bytes=1 << 26)
    assert core.attach(session, "q", messages=messages)
    core.take(session)
    return session


def halves(core: NacksDriver) -> tuple[Session, Session]:
    """One session has every odd offset out, the other one every even offset."""
    core.change(acks(("q", "k", *ALL)))
    one, other = (core.session(window_bytes=1 << 26) for _ in range(2))
    assert all(core.attach(session, "q", messages=MESSAGES) for session in (one, other))
    for _ in range(HALF):
        core.change(publish("k", b""), publish("k", b""))
    core.pump()
    core.take(one)
    core.take(other)
    [stream] = next(iter(core.dispatcher.feeds.values())).streams.values()
    assert len(stream.out) == MESSAGES and one.owed == other.owed == HALF
    return one, other


LATER = (MESSAGES + 1, 2 * MESSAGES + 1)
"""What `halves` publishes."""


def named(handles: int = 1, span: tuple[int, int] = ALL) -> wire.Ack:
    return wire.Ack(key=b"k", low=span[0], to=span[1], handles=[1] * handles)


def of_lost_stream(core: NacksDriver, session: Session, *found: wire.Ack) -> Ask:
    source = Source("connection", session.number)
    return lambda done: take_acks(core.node, source, session, list(found), done, False, of_lost_stream=True)


def half_rests(core: NacksDriver) -> Session:
    """Returns a session. Of what it had every odd offset is done, and every even one rests."""
    session = reader(core)
    nacks = [named(span=(offset, offset + 1)) for offset in range(2, MESSAGES + 1, 2)]
    core.frame(session, wire.Nacks(messages=nacks, delay_ms=3_600_000))
    core.ack(session, "k", *ALL)
    assert session.owed == 0
    return session


def test_a_look_costs_though_nothing_is_left(core: NacksDriver) -> None:
    session, steps = half_rests(core), Steps(core)
    steps.take(of_lost_stream(core, session, *[named()] * 20))
    assert max(steps.looked_at) <= LOOKED_AT_MAX and steps.error is None
    assert sum(steps.looked_at) >= 20 * (MESSAGES - 2), "all of them are looked at"


def test_a_handle_that_an_ack_names_often_is_looked_at_once(core: NacksDriver) -> None:
    session, steps = half_rests(core), Steps(core)
    steps.take(of_lost_stream(core, session, named(handles=10_000)))
    assert sum(steps.looked_at) <= MESSAGES and max(steps.looked_at) <= LOOKED_AT_MAX


@pytest.mark.parametrize("were", ["given again", "out"])
def test_many_stretches_of_a_lost_stream_are_acked_in_steps(core: NacksDriver, were: str) -> None:
    if were == "out":
        halves(core)
        session, span = reader(core, 1), LATER
        expected = MESSAGES
    else:
        lost, session, span = reader(core), reader(core, 1), ALL
        for offset in range(2, MESSAGES + 1, 2):
            core.ack(lost, "k", offset, offset + 1)
        core.dispatcher.close(lost)
        core.pump()
        core.take(session)
        expected = HALF
    steps = Steps(core)
    steps.take(of_lost_stream(core, session, named(span=span)))
    assert sum(steps.acked) == expected and max(steps.acked) <= ACKED_PER_STEP
    core.settle()
    core.check()
    core.check_served()
    assert not core.dispatcher.registry.shares.rests.stretches and not core.take(session)


def test_many_stretches_are_acked_in_steps_where_a_binding_has_as_many_ranges_as_it_may(
    core: NacksDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = halves(core)
    core.ack(other, "k", LATER[1] - 1, LATER[1])
    core.ack(one, "k", LATER[1] - 3, LATER[1])
    monkeypatch.setattr(acks_in_flight, "DONE_RANGES_MAX", 1)
    left, steps = one.owed + other.owed, Steps(core)
    steps.take(of_lost_stream(core, one, named(span=LATER)))
    assert sum(steps.acked) == left > MESSAGES - 4 and max(steps.acked) <= ACKED_PER_STEP
    assert one.owed == other.owed == 0


@pytest.mark.parametrize("how", ["of a session", "unary"])
def test_many_stretches_are_acked_in_steps(core: NacksDriver, how: str) -> None:
    one, other = halves(core)
    ack, source = named(span=LATER), Source("connection", one.number)
    if how == "unary":
        ack = wire.Ack(key=b"k", low=LATER[0], to=LATER[1], queues=[b"q"])
    steps = Steps(core)
    steps.take(lambda done: take_acks(core.node, source, one, [ack], done, how == "unary"))
    assert sum(steps.acked) == (MESSAGES if how == "unary" else HALF)
    assert max(steps.acked) <= ACKED_PER_STEP
    assert (one.owed, other.owed) == (0, 0 if how == "unary" else HALF)
    core.flush()
    core.check()


@pytest.mark.parametrize(("delay_ms", "max_deliveries"), [(0, 0), (1_000, 0), (0, 5)])
def test_many_stretches_are_taken_back_in_steps(core: NacksDriver, delay_ms: int, max_deliveries: int) -> None:
    declared = declare("q")
    declared.declares.options.max_deliveries = max_deliveries
    core.change(declared)
    one, _ = halves(core)
    source, steps = Source("connection", one.number), Steps(core)
    nacks = wire.Nacks(messages=[named(span=LATER)], delay_ms=delay_ms)
    steps.take(lambda done: take_nacks(core.node, source, one, nacks, done, False), one)
    assert steps.error is None and sum(steps.owed) == HALF and max(steps.owed) <= ACKED_PER_STEP
    core.wait(2_000)
    assert len(core.take(one)) + one.attachments[1].messages >= HALF, "all come again"


def test_a_nack_of_more_than_may_rest_takes_nothing_back(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_shares, "RESTING_MAX", HALF - 1)
    one, _ = halves(core)
    source, steps = Source("connection", one.number), Steps(core)
    nacks = wire.Nacks(messages=[named(span=LATER)], delay_ms=1_000)
    steps.take(lambda done: take_nacks(core.node, source, one, nacks, done, False), one)
    assert isinstance(steps.error, ResourceExhausted) and not any(steps.owed)


def test_a_numbered_nack_is_taken_back_in_one_step(core: NacksDriver) -> None:
    """What comes again says which nacks were taken: it must not come between two steps of one."""
    one, _ = halves(core)
    source, steps = Source("connection", one.number), Steps(core)
    nacks = wire.Nacks(messages=[named(span=LATER)], unseen=True, number=1)
    steps.take(lambda done: take_nacks(core.node, source, one, nacks, done, False), one)
    assert sum(steps.owed) == max(steps.owed) == HALF


@pytest.mark.parametrize("everyone", [False, True])
def test_queues_that_are_not_there_are_looked_for_in_steps(core: NacksDriver, everyone: bool) -> None:
    session, steps = reader(core), Steps(core)
    ack = wire.Ack(key=b"k", low=1, to=2, queues=[b"absent-%d" % number for number in range(3 * ACKED_PER_STEP)])
    source = Source("connection", session.number)
    steps.take(lambda done: take_acks(core.node, source, session, [ack], done, everyone))
    assert len(steps.acked) >= 2 * 3, "names are checked before, in as many steps"


def test_a_gap_of_many_stretches_is_noted_in_turns(core: NacksDriver) -> None:
    """The last of many gaps has the rest: what the session has of it is done once it was told."""
    lost = reader(core)
    for offset in range(2, MESSAGES + 1, 2):
        core.ack(lost, "k", offset, offset + 1)
    core.dispatcher.close(lost)
    core.settle()
    core.change(configure("k", KeyOptions(capacity_messages=1, policy="drop_oldest")), publish("k", b"last"))
    session = core.session(window_bytes=1 << 26)
    assert core.attach(session, "q", messages=MESSAGES)
    core.pump()
    core.dispatcher.take(session, 1 << 20)
    assert session.owed == HALF + 1
    turns = 0
    while core.dispatcher.acks.gaps_left:
        before = session.owed
        core.dispatcher.acks.gaps_turn(PUMP_TURN_HANDLES)
        assert before - session.owed <= 2 * PUMP_TURN_HANDLES
        turns += 1
    assert session.owed == 1 and turns > HALF // PUMP_TURN_HANDLES
    core.ack(session, "k", MESSAGES + 1, MESSAGES + 2)
    core.settle()
    core.check()
